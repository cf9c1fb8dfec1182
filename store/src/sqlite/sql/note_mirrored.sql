-- Notes the present attempt of a handed-over task as failed, if its queue has begun a later one.
INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
SELECT id, epoch, attempt, lease_owner, started_at, ?4, 'failed', ?5
FROM punctual_tasks
WHERE id = ?1 AND epoch = ?2 AND status = 'running' AND lease_expires_at IS NULL AND attempt < ?3
