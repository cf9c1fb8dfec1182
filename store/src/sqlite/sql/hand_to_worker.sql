-- Makes a node's lease that still holds a worker's, of ?4 seconds from now; a heartbeat extends it by as long.
UPDATE punctual_tasks
SET lease_seconds = ?4, lease_expires_at = ?1 + ?4 * 1000000
WHERE id = ?2 AND epoch = ?3 AND status = 'running' AND lease_expires_at > ?1
RETURNING lease_expires_at
