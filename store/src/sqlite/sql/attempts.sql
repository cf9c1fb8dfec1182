-- A task's attempts in order: the noted ones, one that runs now, and a success at the first try. What follows a failure under the
-- same number is no attempt: the task rested in a queue, or ended while it did.
SELECT number, node_id, epoch, started_at, ended_at, outcome, error
FROM punctual_attempts AS a
WHERE task_id = ?1 AND NOT EXISTS (
    SELECT 1 FROM punctual_attempts AS r
    WHERE r.task_id = a.task_id AND r.epoch = a.epoch - 1 AND r.number = a.number AND r.outcome = 'failed')
UNION ALL
SELECT attempt, lease_owner, epoch, started_at, NULL, NULL, NULL
FROM punctual_tasks AS t
WHERE id = ?1 AND status = 'running' AND NOT EXISTS (
    SELECT 1 FROM punctual_attempts AS r
    WHERE r.task_id = t.id AND r.epoch = t.epoch - 1 AND r.number = t.attempt AND r.outcome = 'failed')
UNION ALL
SELECT attempt, last_node_id, epoch, started_at, completed_at, last_outcome, error
FROM punctual_task_history AS h
WHERE id = ?1 AND last_outcome IS NOT NULL
    AND NOT EXISTS (SELECT 1 FROM punctual_attempts AS a WHERE a.task_id = h.id AND a.epoch = h.epoch)
ORDER BY epoch
