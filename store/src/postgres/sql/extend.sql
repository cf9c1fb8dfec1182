-- Extends leases that still hold; one that ran out or belongs to another epoch stays as it is.
UPDATE punctual_tasks AS t
SET lease_expires_at = clock.now + $4::bigint * interval '1 microsecond'
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock,
    unnest($2::uuid[], $3::bigint[]) AS held (id, epoch)
WHERE t.id = held.id AND t.epoch = held.epoch AND t.status = 'running' AND t.lease_expires_at > clock.now
RETURNING t.id, t.epoch, t.lease_expires_at
