-- Makes a node's lease that still holds a worker's, of $4 seconds from now; a heartbeat extends it by as long.
UPDATE punctual_tasks
SET lease_seconds = $4, lease_expires_at = coalesce($1::timestamptz, statement_timestamp()) + $4 * interval '1 second'
WHERE id = $2 AND epoch = $3 AND status <> 'pending'
    AND lease_expires_at > coalesce($1::timestamptz, statement_timestamp())
RETURNING lease_expires_at
