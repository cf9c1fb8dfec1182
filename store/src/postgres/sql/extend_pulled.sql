-- Extends a worker's lease that still holds by as long as its claim said.
UPDATE punctual_tasks
SET lease_expires_at = least(
    coalesce($1::timestamptz, statement_timestamp()) + lease_seconds * interval '1 second',
    timestamptz '9999-12-31 23:59:59.999999+00')
WHERE id = $2 AND epoch = $3 AND status <> 'pending' AND lease_seconds IS NOT NULL
    AND lease_expires_at > coalesce($1::timestamptz, statement_timestamp())
RETURNING lease_expires_at
