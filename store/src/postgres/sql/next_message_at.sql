-- When the next pending message of these transports is due.
SELECT min(soonest.at)
FROM unnest($1::text[]) AS t (transport), LATERAL (
    SELECT next_attempt_at AS at FROM punctual_outbox
    WHERE status = 'pending' AND transport = t.transport
    ORDER BY next_attempt_at
    LIMIT 1
) AS soonest
