-- Ends running tasks as completed at their first claim and with nothing to show: settle_ended for what is settled most.
-- Such a task has begun once, lost nothing and noted nothing. Here and wherever tasks are named by their ids, "not pending"
-- stands for "running": the index of those that run, which old statistics call empty, must not be read through for them.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), ended AS (
    DELETE FROM punctual_tasks
    WHERE id = ANY ($2) AND epoch = 1 AND status <> 'pending'
    RETURNING
        id, topic, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, lease_owner, schedule_id, scheduled_at,
        retry_of, rescheduled_from, created_at, started_at
), history AS (
    INSERT INTO punctual_task_history (
        id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
        last_node_id, last_outcome, schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
        completed_at
    )
    SELECT
        id, topic, 'completed', priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, 1, 0, 0, 1,
        lease_owner, 'completed', schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
        clock.now
    FROM ended, clock
)
SELECT settled, CASE WHEN settled < cardinality($2) THEN ARRAY(SELECT id FROM ended) END
FROM (SELECT count(*) AS settled FROM ended) AS counted
