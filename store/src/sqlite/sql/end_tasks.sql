-- Copies ending tasks to the history: running ones by their epoch, or any live one where no epoch is given. Answers
-- those it copied; delete_tasks.sql then removes them, in the same transaction.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_task_history (
    id, topic, status, priority, run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, attempt, lost, snoozes, epoch,
    last_node_id, last_outcome, result, error, schedule_id, scheduled_at, retry_of, rescheduled_from,
    created_at, started_at, completed_at
)
SELECT
    t.id, t.topic, g.row ->> 2, t.priority, t.run_at, t.timezone, t.payload, t.metadata, t.owner_id, t.tenant_id,
    t.correlation_id, t.client_request_id, t.dedupe_key, t.serial_key, t.timeout_seconds, t.retry, t.attempt,
    -- What a claim counted as a possible loss is taken back, unless it is one.
    t.lost - (t.status = 'running' AND g.row ->> 3 <> 'lost'), t.snoozes, t.epoch,
    CASE t.status WHEN 'running' THEN t.lease_owner
        ELSE (SELECT node_id FROM punctual_attempts WHERE task_id = t.id AND epoch = t.epoch) END,
    CASE t.status WHEN 'running' THEN g.row ->> 3
        ELSE (SELECT outcome FROM punctual_attempts WHERE task_id = t.id AND epoch = t.epoch) END,
    g.row ->> 4, CASE WHEN g.row ->> 2 = 'completed' THEN NULL ELSE coalesce(g.row ->> 5, t.error) END,
    t.schedule_id, t.scheduled_at, t.retry_of, t.rescheduled_from, t.created_at, t.started_at, ?2
FROM given AS g
CROSS JOIN punctual_tasks AS t ON t.id = unhex(g.row ->> 0)
WHERE g.row ->> 1 IS NULL OR (t.epoch = g.row ->> 1 AND t.status = 'running')
RETURNING id, epoch, attempt
