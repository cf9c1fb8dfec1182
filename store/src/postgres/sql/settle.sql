-- Settles running tasks by their epochs; any other epoch, or a task that does not run, changes nothing.
-- Ended ones move to the history. Answers what was settled.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), input AS (
    SELECT *
    FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::bigint[], $7::text[], $8::text[])
        AS i (id, epoch, becomes, outcome, delay_us, result, reason)
), held AS MATERIALIZED (
    -- Rows are locked in the order of their ids, here and wherever several are waited for: nobody deadlocks.
    -- They are then found by id, not by ctid: a row that moved while we waited would be missed.
    SELECT t.id, t.epoch, t.attempt, t.lease_owner, t.started_at,
        i.becomes, i.outcome, i.delay_us, i.result, i.reason
    FROM punctual_tasks AS t JOIN input AS i ON i.id = t.id AND i.epoch = t.epoch
    WHERE t.status = 'running'
    ORDER BY t.id
    FOR UPDATE OF t
), ended AS (
    DELETE FROM punctual_tasks AS t
    USING held AS h
    WHERE t.id = h.id AND t.epoch = h.epoch AND t.status = 'running' AND h.becomes <> 'pending'
    RETURNING t.*, h.becomes, h.outcome, h.result, h.reason
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
), kept AS (
    UPDATE punctual_tasks AS t
    SET status = 'pending', lost = t.lost - 1, snoozes = t.snoozes + (h.outcome = 'snoozed')::integer,
        attempt = t.attempt - (h.outcome = 'handed_back')::integer,
        run_at = CASE WHEN h.delay_us IS NULL THEN t.run_at
            ELSE least(clock.now + h.delay_us * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') END,
        lease_owner = NULL, lease_expires_at = NULL, error = coalesce(h.reason, t.error)
    FROM held AS h, clock
    WHERE t.id = h.id AND t.epoch = h.epoch AND t.status = 'running' AND h.becomes = 'pending'
    RETURNING t.id, t.epoch
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, outcome, reason
    FROM held, clock WHERE outcome <> 'completed' OR attempt > 1
)
SELECT id, epoch FROM ended UNION ALL SELECT id, epoch FROM kept
