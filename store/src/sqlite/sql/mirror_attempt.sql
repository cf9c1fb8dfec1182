-- Moves a handed-over task on to an attempt that its queue began.
UPDATE punctual_tasks SET epoch = epoch + 1, attempt = ?3, started_at = ?4, error = ?5
WHERE id = ?1 AND epoch = ?2 AND status = 'running' AND lease_expires_at IS NULL AND attempt < ?3
