-- Ends live tasks as cancelled; with $3, only those that do not run. A running attempt is noted. Answers their ids, whether
-- they ran, their topics, and whether fires made them; where a queue serves any topic, whether they had begun; and the fire that a
-- job of theirs would be called after.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT id FROM punctual_tasks
    WHERE id = ANY ($2) AND (status = 'pending' OR NOT $3)
    ORDER BY id
    FOR UPDATE
), doomed AS (
    DELETE FROM punctual_tasks WHERE id = ANY (ARRAY(SELECT id FROM held))
    RETURNING *
), history AS (
    INSERT INTO punctual_task_history (
        id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
        last_node_id, last_outcome, result, error, schedule_id, scheduled_at, retry_of, rescheduled_from,
        created_at, started_at, completed_at
    )
    SELECT
        id, topic, 'cancelled', priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
        client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt,
        lost - (status = 'running')::integer, snoozes, epoch, lease_owner,
        CASE WHEN status = 'running' THEN 'cancelled' END, NULL, error, schedule_id, scheduled_at, retry_of,
        rescheduled_from, created_at, started_at, clock.now
    FROM doomed, clock
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, 'cancelled'
    FROM doomed, clock WHERE status = 'running'
)
SELECT
    id, status = 'running', topic, schedule_id IS NOT NULL,
    epoch > 0 AND EXISTS (SELECT FROM punctual_topics WHERE definition::jsonb -> 'route' ->> 'type' = 'bullmq'),
    CASE WHEN retry_of IS NULL AND rescheduled_from IS NULL THEN schedule_id END, scheduled_at
FROM doomed
