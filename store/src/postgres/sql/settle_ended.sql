-- Ends running tasks by their epochs: they move to the history. Any other epoch, or a task that does not run, changes
-- nothing. Answers how many were settled and, if not all, which. The input is in the order of ids: rows are locked in
-- that order wherever several are waited for, so that nobody deadlocks.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), ended AS (
    DELETE FROM punctual_tasks AS t
    USING unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::text[])
        AS i (id, epoch, becomes, outcome, result, reason)
    WHERE t.id = i.id AND t.epoch = i.epoch AND t.status <> 'pending'
    RETURNING t.*, i.becomes, i.outcome, i.result, i.reason
), history AS (
    INSERT INTO punctual_task_history (
        id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
        last_node_id, last_outcome, result, error, schedule_id, scheduled_at, retry_of, rescheduled_from,
        created_at, started_at, completed_at
    )
    SELECT
        id, topic, becomes, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost - 1, snoozes, epoch,
        lease_owner, outcome, result, CASE WHEN becomes = 'completed' THEN NULL ELSE coalesce(reason, error) END,
        schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at, clock.now
    FROM ended, clock
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, outcome, reason
    FROM ended, clock WHERE outcome <> 'completed' OR attempt > 1
)
SELECT
    (SELECT count(*) FROM ended),
    CASE WHEN (SELECT count(*) FROM ended) < cardinality($2) THEN ARRAY(SELECT id FROM ended) END,
    CASE WHEN (SELECT count(*) FROM ended) < cardinality($2) THEN ARRAY(SELECT epoch FROM ended) END
