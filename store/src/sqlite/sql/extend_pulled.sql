-- Extends a worker's lease that still holds by as long as its claim said.
UPDATE punctual_tasks
SET lease_expires_at = ?1 + lease_seconds * 1000000
WHERE id = ?2 AND epoch = ?3 AND status = 'running' AND lease_seconds IS NOT NULL AND lease_expires_at > ?1
RETURNING lease_expires_at
