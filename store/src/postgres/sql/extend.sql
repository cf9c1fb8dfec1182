-- Extends leases that still hold; one that ran out or belongs to another epoch stays as it is.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT t.id
    FROM clock, unnest($2::uuid[], $3::bigint[]) AS h (id, epoch)
    JOIN punctual_tasks AS t ON t.id = h.id AND t.epoch = h.epoch
    WHERE t.status <> 'pending' AND t.lease_expires_at > clock.now
    ORDER BY t.id
    FOR UPDATE OF t
)
UPDATE punctual_tasks AS t
SET lease_expires_at = least(clock.now + $4::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
FROM clock
WHERE t.id = ANY (ARRAY(SELECT id FROM held))
RETURNING t.id, t.epoch, t.lease_expires_at
