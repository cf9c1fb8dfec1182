-- Topics with their due and unclaimed tasks, since when the oldest is due, and their running tasks.
SELECT topic, sum(due)::bigint, min(due_since), sum(running)::bigint
FROM (
    SELECT topic, count(*) AS due, min(run_at) AS due_since, 0 AS running
    FROM punctual_tasks
    WHERE status = 'pending' AND run_at <= coalesce($1, statement_timestamp())
    GROUP BY topic
    UNION ALL
    SELECT topic, 0, NULL, count(*)
    FROM punctual_tasks
    WHERE status = 'running'
    GROUP BY topic) AS parts
GROUP BY topic
ORDER BY topic
