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
    GROUP BY topic
    UNION ALL
    -- Those that a queue has accepted run without a lease.
    SELECT t.topic, 0, NULL, count(*)
    FROM punctual_hand_overs AS o
    CROSS JOIN punctual_tasks AS t ON t.id = o.task_id AND t.status = 'running' AND t.lease_expires_at IS NULL
    GROUP BY t.topic)
GROUP BY topic
ORDER BY topic
