-- Topics with their due and unclaimed tasks, since when the oldest is due, and their running tasks.
SELECT topic, sum(due), min(due_since), sum(running)
FROM (
    SELECT topic, count(*) AS due, min(run_at) AS due_since, 0 AS running
    FROM punctual_tasks INDEXED BY punctual_tasks_run_at
    WHERE status = 'pending' AND run_at <= ?1
    GROUP BY topic
    UNION ALL
    SELECT topic, 0, NULL, count(*)
    FROM punctual_tasks INDEXED BY punctual_tasks_lease
    WHERE lease_expires_at IS NOT NULL AND status = 'running'
    GROUP BY topic)
GROUP BY topic
ORDER BY topic
