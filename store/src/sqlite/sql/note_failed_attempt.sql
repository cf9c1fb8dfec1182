-- Notes that the present attempt of a handed-over task failed in its queue.
INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
SELECT t.id, t.epoch, t.attempt, t.lease_owner, t.started_at, ?3, 'failed', ?4
FROM punctual_tasks AS t
WHERE t.id = ?1 AND t.epoch = ?2 AND t.status = 'running' AND t.lease_expires_at IS NULL
    AND NOT EXISTS (
        SELECT 1 FROM punctual_attempts AS r
        WHERE r.task_id = t.id AND r.epoch = t.epoch - 1 AND r.number = t.attempt AND r.outcome = 'failed')
