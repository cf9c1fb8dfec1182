-- Writes tasks; one whose dedupe key belongs to a live task of its topic is left out. Answers those written.
INSERT INTO punctual_tasks (
    id, topic, priority, run_at, first_run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, schedule_id, scheduled_at, retry_of,
    rescheduled_from, created_at
)
SELECT
    n.id, n.topic, n.priority, due.run_at, due.run_at, n.timezone, n.payload, n.metadata, n.owner_id, n.tenant_id,
    n.correlation_id, n.client_request_id, n.dedupe_key, n.serial_key, n.timeout_seconds, n.retry, n.schedule_id,
    n.scheduled_at, n.retry_of, n.rescheduled_from, clock.now
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
CROSS JOIN unnest(
    $2::uuid[], $3::text[], $4::integer[], $5::timestamptz[], $6::bigint[], $7::text[], $8::text[], $9::text[],
    $10::text[], $11::text[], $12::text[], $13::text[], $14::text[], $15::text[], $16::integer[], $17::text[],
    $18::uuid[], $19::timestamptz[], $20::uuid[], $21::uuid[]
) AS n (
    id, topic, priority, due_at, due_after_us, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, schedule_id, scheduled_at, retry_of,
    rescheduled_from
)
CROSS JOIN LATERAL (
    SELECT coalesce(
        n.due_at,
        least(clock.now + n.due_after_us * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
    ) AS run_at
) AS due
-- Two batches that share keys meet them in the same order.
ORDER BY n.topic, n.dedupe_key, n.id
ON CONFLICT (topic, dedupe_key) WHERE dedupe_key IS NOT NULL DO NOTHING
RETURNING id, run_at, created_at
