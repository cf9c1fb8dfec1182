-- Writes failed tasks once more, due now, under new ids; one whose dedupe key belongs to a live task is left out.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_tasks (
    id, topic, priority, run_at, first_run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    dedupe_key, serial_key, timeout_seconds, retry, schedule_id, scheduled_at, retry_of, created_at
)
SELECT
    unhex(g.row ->> 0), h.topic, h.priority, ?2, ?2, h.timezone, h.payload, h.metadata, h.owner_id, h.tenant_id,
    h.correlation_id, h.dedupe_key, h.serial_key, h.timeout_seconds, h.retry, h.schedule_id, h.scheduled_at, h.id, ?2
FROM given AS g
CROSS JOIN punctual_task_history AS h ON h.id = unhex(g.row ->> 1)
WHERE h.status = 'failed'
ON CONFLICT (topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
