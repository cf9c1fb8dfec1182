-- Gives running tasks back by their epochs: pending again, after a delay if there is one. Any other epoch, or a task
-- that does not run, changes nothing. Answers which were settled. The input is in the order of ids, as for settle_ended.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT t.id, t.epoch, t.attempt, t.lease_owner, t.started_at, i.outcome, i.delay_us, i.reason
    FROM unnest($2::uuid[], $3::bigint[], $4::text[], $5::bigint[], $6::text[])
        AS i (id, epoch, outcome, delay_us, reason)
    JOIN punctual_tasks AS t ON t.id = i.id AND t.epoch = i.epoch
    WHERE t.status <> 'pending'
    ORDER BY t.id
    FOR UPDATE OF t
), kept AS (
    -- By id, not by ctid: a row that moved while we waited for it would be missed.
    UPDATE punctual_tasks AS t
    SET status = 'pending', lost = t.lost - 1, snoozes = t.snoozes + (h.outcome = 'snoozed')::integer,
        attempt = t.attempt - (h.outcome = 'handed_back')::integer,
        run_at = CASE WHEN h.delay_us IS NULL THEN t.run_at
            ELSE least(clock.now + h.delay_us * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') END,
        lease_owner = NULL, lease_expires_at = NULL, lease_seconds = NULL, error = coalesce(h.reason, t.error)
    FROM held AS h, clock
    WHERE t.id = h.id AND t.epoch = h.epoch AND t.status <> 'pending'
    RETURNING t.id, t.epoch
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, outcome, reason
    FROM held, clock
)
SELECT id, epoch FROM kept
