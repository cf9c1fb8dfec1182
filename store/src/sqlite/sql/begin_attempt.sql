-- Moves a handed-over task that rests on to the attempt that its queue began.
UPDATE punctual_tasks AS t
SET attempt = t.attempt + 1, started_at = ?3
FROM punctual_attempts AS r
WHERE t.id = ?1 AND t.epoch = ?2 AND t.status = 'running' AND t.lease_expires_at IS NULL
    AND r.task_id = t.id AND r.epoch = t.epoch - 1 AND r.number = t.attempt AND r.outcome = 'failed'
