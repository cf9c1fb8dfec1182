-- Of the ?2 oldest messages that wait to be sent, those that have waited since ?1: how many, and since when. One that somebody
-- retried waits since then.
SELECT count(*), min(created_at)
FROM (
    SELECT created_at, attempt, next_attempt_at FROM punctual_outbox INDEXED BY punctual_outbox_status
    WHERE status = 'pending' ORDER BY id LIMIT ?2)
WHERE created_at <= ?1 AND (attempt > 0 OR next_attempt_at <= ?1)
