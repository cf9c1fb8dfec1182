-- Copies tasks to the history that completed at their first claim, with nothing to show: end_tasks.sql for what is
-- settled most. ?1 has their ids one after the other, ?2 counts them.
INSERT INTO punctual_task_history (
    id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
    last_node_id, last_outcome, schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
    completed_at
)
SELECT
    id, topic, 'completed', priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost - 1, snoozes, epoch,
    lease_owner, 'completed', schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at, ?3
FROM punctual_tasks
WHERE id IN (SELECT substr(?1, 1 + 16 * value, 16) FROM json_each(?2)) AND epoch = 1 AND status = 'running'
