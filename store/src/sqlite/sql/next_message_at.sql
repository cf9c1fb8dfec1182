-- When the next pending message is due.
SELECT min(next_attempt_at) FROM punctual_outbox INDEXED BY punctual_outbox_due WHERE status = 'pending'
