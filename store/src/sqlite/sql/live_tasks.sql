-- Live tasks, in the columns every reader of tasks expects.
SELECT
    id, topic, status, run_at, timezone, payload, metadata, client_request_id, dedupe_key, serial_key, priority,
    timeout_seconds, retry, attempt, lost, snoozes, epoch, lease_owner, lease_expires_at, NULL AS result, error,
    schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at, NULL AS completed_at
FROM punctual_tasks
