-- Writes tasks, in the order given; whether their keys are free was looked up in the same transaction.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_tasks (
    id, topic, priority, run_at, first_run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, schedule_id, scheduled_at, retry_of,
    rescheduled_from, created_at
)
SELECT
    unhex(row ->> 0), row ->> 1, row ->> 2, row ->> 3, row ->> 3, row ->> 4, row ->> 5, row ->> 6,
    row ->> 7, row ->> 8, row ->> 9, row ->> 10, row ->> 11, row ->> 12, row ->> 13, row ->> 14,
    unhex(row ->> 15), row ->> 16, unhex(row ->> 17), unhex(row ->> 18), ?2
FROM given
