-- Claims the rows that were found claimable in the same transaction.
UPDATE punctual_tasks
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = ?3,
    lease_expires_at = ?4, started_at = ?1
WHERE rowid IN (SELECT value FROM json_each(?2)) AND status = 'pending'
RETURNING
    id, topic, status, run_at, timezone, payload, metadata, client_request_id, dedupe_key, serial_key, priority,
    timeout_seconds, retry, attempt, lost, snoozes, epoch, lease_owner, lease_expires_at, NULL AS result, error,
    schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at, NULL AS completed_at
