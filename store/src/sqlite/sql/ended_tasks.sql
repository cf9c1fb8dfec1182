-- Ended tasks, in the columns every reader of tasks expects.
SELECT
    id, topic, status, run_at, timezone, payload, metadata, client_request_id, dedupe_key, serial_key, priority,
    timeout_seconds, retry, attempt, lost, snoozes, epoch, NULL AS lease_owner, NULL AS lease_expires_at, result, error,
    schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at, completed_at
FROM punctual_task_history
