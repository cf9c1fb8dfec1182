-- Frees running tasks whose lease ran out: back to pending, or failed on the last loss allowed. Each loss is noted. Answers how
-- many there were of each, and of the failed ones how many of each topic and origin.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), lapsed AS MATERIALIZED (
    SELECT t.id, t.epoch, t.attempt, t.lost, t.lease_owner, t.started_at
    FROM punctual_tasks AS t, clock
    WHERE t.status = 'running' AND t.lease_expires_at <= clock.now
    ORDER BY t.lease_expires_at
    LIMIT $3
    FOR UPDATE OF t SKIP LOCKED
), given_up AS (
    DELETE FROM punctual_tasks
    WHERE id = ANY (ARRAY(SELECT id FROM lapsed WHERE lost >= $2))
    RETURNING *
), history AS (
    INSERT INTO punctual_task_history (
        id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
        last_node_id, last_outcome, result, error, schedule_id, scheduled_at, retry_of, rescheduled_from,
        created_at, started_at, completed_at
    )
    SELECT
        id, topic, 'failed', priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
        lease_owner, 'lost', NULL, $4, schedule_id, scheduled_at, retry_of, rescheduled_from,
        created_at, started_at, clock.now
    FROM given_up, clock
), freed AS (
    UPDATE punctual_tasks SET status = 'pending', lease_owner = NULL, lease_expires_at = NULL, lease_seconds = NULL
    WHERE id = ANY (ARRAY(SELECT id FROM lapsed WHERE lost < $2))
    RETURNING id
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, 'lost', CASE WHEN lost >= $2 THEN $4 END
    FROM lapsed, clock
)
SELECT
    (SELECT count(*) FROM freed), (SELECT count(*) FROM given_up),
    (SELECT json_agg(json_build_array(topic, of_schedule, tasks) ORDER BY topic, of_schedule)::text
     FROM (SELECT topic, schedule_id IS NOT NULL AS of_schedule, count(*) AS tasks FROM given_up GROUP BY 1, 2) AS g)
