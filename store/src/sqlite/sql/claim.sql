-- Claims the rows that were found claimable in the same transaction.
-- OR FAIL: what fails is rolled back with its job, so SQLite need not keep every page as it was before.
UPDATE OR FAIL punctual_tasks
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = ?3,
    lease_expires_at = ?4, started_at = ?1
WHERE rowid IN (SELECT value FROM json_each(?2)) AND status = 'pending'
