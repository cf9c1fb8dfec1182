-- Writes tasks, in the order given; whether their keys are free was looked up in the same transaction.
INSERT INTO punctual_tasks (
    id, topic, priority, run_at, first_run_at, timezone, payload, metadata, owner_id, tenant_id, correlation_id,
    client_request_id, dedupe_key, serial_key, timeout_seconds, retry, schedule_id, scheduled_at, retry_of,
    rescheduled_from, created_at
)
SELECT
    unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    value ->> 7, value ->> 8, value ->> 9, value ->> 10, value ->> 11, value ->> 12, value ->> 13, value ->> 14,
    unhex(value ->> 15), value ->> 16, unhex(value ->> 17), unhex(value ->> 18), ?2
FROM json_each(?1)
