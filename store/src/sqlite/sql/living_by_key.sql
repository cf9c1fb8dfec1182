-- The live tasks that hold these dedupe keys of these topics.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
SELECT
    t.id, t.topic, t.status, t.run_at, t.timezone, t.payload, t.metadata, t.client_request_id, t.dedupe_key,
    t.serial_key, t.priority, t.timeout_seconds, t.retry, t.attempt, t.lost, t.snoozes, t.epoch, t.lease_owner,
    t.lease_expires_at, NULL AS result, t.error, t.schedule_id, t.scheduled_at, t.retry_of, t.rescheduled_from,
    t.created_at, t.started_at, NULL AS completed_at
FROM given AS g
CROSS JOIN punctual_tasks AS t INDEXED BY punctual_tasks_dedupe
    ON t.topic = g.row ->> 0 AND t.dedupe_key = g.row ->> 1
