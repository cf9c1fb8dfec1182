-- Lets a handed-over task rest by the next epoch, after its attempt was noted as failed.
UPDATE punctual_tasks SET epoch = epoch + 1, error = ?3
WHERE id = ?1 AND epoch = ?2 AND status = 'running' AND lease_expires_at IS NULL
