-- Claims for a worker the rows that were found pullable in the same transaction.
UPDATE punctual_tasks
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = ?3,
    lease_expires_at = ?4, lease_seconds = ?5, started_at = ?1
WHERE rowid IN (SELECT value FROM json_each(?2)) AND status = 'pending'
