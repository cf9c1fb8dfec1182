-- Claims for a worker the rows that were found pullable in the same transaction.
UPDATE punctual_tasks
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = ?3,
    lease_expires_at = ?4, lease_seconds = ?5, started_at = ?1
WHERE rowid IN (SELECT value FROM json_each(?2)) AND status = 'pending'
RETURNING
    id, topic, run_at, payload, priority, attempt, lost, epoch, created_at, started_at, lease_expires_at,
    -- What few tasks have comes in one piece, as in claim.sql.
    CASE WHEN timezone = 'UTC' AND timeout_seconds = 3600 AND snoozes = 0 AND metadata IS NULL
            AND client_request_id IS NULL AND dedupe_key IS NULL AND serial_key IS NULL AND retry IS NULL
            AND error IS NULL AND schedule_id IS NULL AND retry_of IS NULL AND rescheduled_from IS NULL
        THEN NULL
        ELSE json_array(
            timezone, timeout_seconds, snoozes, metadata, client_request_id, dedupe_key, serial_key, retry, error,
            iif(schedule_id IS NULL, NULL, hex(schedule_id)), scheduled_at,
            iif(retry_of IS NULL, NULL, hex(retry_of)),
            iif(rescheduled_from IS NULL, NULL, hex(rescheduled_from)))
    END
