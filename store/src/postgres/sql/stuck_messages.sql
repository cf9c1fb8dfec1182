-- Of the $3 oldest messages that wait to be sent, those that have waited for $2 microseconds: how many, and since when. One
-- that somebody retried waits since then.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 microsecond' AS before
), oldest AS (
    SELECT created_at, attempt, next_attempt_at FROM punctual_outbox WHERE status = 'pending' ORDER BY id LIMIT $3
)
SELECT count(*), min(created_at)
FROM oldest, clock
WHERE created_at <= before AND (attempt > 0 OR next_attempt_at <= before)
