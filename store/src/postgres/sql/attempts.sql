-- A task's attempts in order: the noted ones, one that runs now, and a success at the first try.
SELECT number, node_id, epoch, started_at, ended_at, outcome, error FROM punctual_attempts WHERE task_id = $1
UNION ALL
SELECT attempt, lease_owner, epoch, started_at, NULL, NULL, NULL
FROM punctual_tasks WHERE id = $1 AND status <> 'pending'
UNION ALL
SELECT attempt, last_node_id, epoch, started_at, completed_at, last_outcome, error
FROM punctual_task_history AS h
WHERE id = $1 AND last_outcome IS NOT NULL
    AND NOT EXISTS (SELECT FROM punctual_attempts AS a WHERE a.task_id = h.id AND a.epoch = h.epoch)
ORDER BY epoch
