-- Extends leases that still hold; one that ran out or belongs to another epoch stays as it is.
UPDATE punctual_tasks AS t
SET lease_expires_at = ?3
FROM json_each(?2) AS held
WHERE t.id = unhex(held.value ->> 0) AND t.epoch = held.value ->> 1 AND t.status = 'running'
    AND t.lease_expires_at > ?1
RETURNING id, epoch
