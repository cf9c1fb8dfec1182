-- The store's instant; how many tasks failed within $2 microseconds, counted up to $3; how often a node became the leader.
WITH since AS (
    SELECT now, now - $2::bigint * interval '1 microsecond' AS at
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
)
SELECT now,
    (SELECT count(*) FROM (
        SELECT FROM punctual_task_history WHERE status = 'failed' AND completed_at > since.at LIMIT $3) AS failed),
    (SELECT count(*) FROM punctual_leader_changes WHERE changed_at > since.at)
FROM since
