-- Writes tasks that are due now and have nothing but the fields most tasks have, each claimed as it is written, by node $2
-- for $3 microseconds. Answers when.
WITH clock AS MATERIALIZED (
    SELECT now,
        least(now + $3::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') AS lease_ends_at
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS c
), written AS (
    INSERT INTO punctual_tasks (
        id, topic, priority, run_at, first_run_at, timezone, payload, timeout_seconds, created_at,
        status, attempt, lost, epoch, lease_owner, lease_expires_at, started_at
    )
    SELECT
        n.id, n.topic, n.priority, clock.now, clock.now, n.timezone, n.payload, n.timeout_seconds, clock.now,
        'running', 1, 1, 1, $2, clock.lease_ends_at, clock.now
    FROM clock
    CROSS JOIN unnest($4::uuid[], $5::text[], $6::integer[], $7::text[], $8::text[], $9::integer[])
        AS n (id, topic, priority, timezone, payload, timeout_seconds)
)
SELECT now FROM clock
