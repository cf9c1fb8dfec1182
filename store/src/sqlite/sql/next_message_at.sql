-- When the next pending message of these transports is due.
SELECT min((
    SELECT next_attempt_at FROM punctual_outbox INDEXED BY punctual_outbox_due
    WHERE status = 'pending' AND transport = value
    ORDER BY next_attempt_at
    LIMIT 1))
FROM json_each(?1)
