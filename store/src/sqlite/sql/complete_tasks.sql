-- Copies tasks to the history that completed at their first claim, with nothing to show: end_tasks.sql for what is
-- settled most. ?1 has the numbers of their rows, ?2 their ids one after the other.
-- OR FAIL: what fails is rolled back with its transaction, so SQLite need not keep every page as it was before.
INSERT OR FAIL INTO punctual_task_history (
    id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
    last_node_id, last_outcome, schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
    completed_at
)
SELECT
    t.id, topic, 'completed', priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost - 1, snoozes, epoch,
    lease_owner, 'completed', schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at, ?3
FROM json_each(?1) AS line
CROSS JOIN punctual_tasks AS t ON t.rowid = line.value
-- The number of a row that was removed may be another's by now.
WHERE t.id = substr(?2, 1 + 16 * line.key, 16) AND epoch = 1 AND status = 'running'
