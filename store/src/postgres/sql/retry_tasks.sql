-- Writes failed tasks once more, due now, under new ids; one whose dedupe key belongs to a live task is left out.
INSERT INTO punctual_tasks (
    id, topic, priority, run_at, first_run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    dedupe_key, serial_key, timeout_seconds, retry, schedule_id, scheduled_at, retry_of, created_at
)
SELECT
    n.id, h.topic, h.priority, clock.now, clock.now, h.timezone, h.payload, h.metadata, h.owner_id, h.tenant_id,
    h.correlation_id, h.dedupe_key, h.serial_key, h.timeout_seconds, h.retry, h.schedule_id, h.scheduled_at, h.id,
    clock.now
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
CROSS JOIN unnest($2::uuid[], $3::uuid[]) AS n (id, retry_of)
JOIN punctual_task_history AS h ON h.id = n.retry_of AND h.status = 'failed'
-- Two batches that share keys meet them in the same order.
ORDER BY h.topic, h.dedupe_key, n.id
ON CONFLICT (topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
