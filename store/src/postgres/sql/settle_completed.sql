-- Ends running tasks by their epochs, as completed and with nothing to show: settle_ended for what is settled most.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), ended AS (
    DELETE FROM punctual_tasks AS t
    USING unnest($2::uuid[], $3::bigint[]) AS i (id, epoch)
    WHERE t.id = i.id AND t.epoch = i.epoch AND t.status = 'running'
    RETURNING t.*
), history AS (
    INSERT INTO punctual_task_history (
        id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
        last_node_id, last_outcome, schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
        completed_at
    )
    SELECT
        id, topic, 'completed', priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost - 1, snoozes, epoch,
        lease_owner, 'completed', schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
        clock.now
    FROM ended, clock
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, 'completed'
    FROM ended, clock WHERE attempt > 1
)
SELECT
    (SELECT count(*) FROM ended),
    CASE WHEN (SELECT count(*) FROM ended) < cardinality($2) THEN ARRAY(SELECT id FROM ended) END,
    CASE WHEN (SELECT count(*) FROM ended) < cardinality($2) THEN ARRAY(SELECT epoch FROM ended) END
