-- Extends leases that still hold; one that ran out or belongs to another epoch stays as it is.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?2)
)
UPDATE punctual_tasks AS t
SET lease_expires_at = ?3
FROM given AS g
WHERE t.id = unhex(g.row ->> 0) AND t.epoch = g.row ->> 1 AND t.status = 'running'
    AND t.lease_expires_at > ?1
RETURNING id, epoch
