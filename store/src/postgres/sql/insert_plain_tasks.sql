-- Writes tasks that have nothing but the fields most tasks have, so that none can be refused. Answers when.
WITH clock AS MATERIALIZED (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), written AS (
    INSERT INTO punctual_tasks (
        id, topic, priority, run_at, first_run_at, timezone, payload, timeout_seconds, created_at
    )
    SELECT n.id, n.topic, n.priority, due.run_at, due.run_at, n.timezone, n.payload, n.timeout_seconds, clock.now
    FROM clock
    CROSS JOIN unnest(
        $2::uuid[], $3::text[], $4::integer[], $5::timestamptz[], $6::bigint[], $7::text[], $8::text[], $9::integer[]
    ) AS n (id, topic, priority, due_at, due_after_us, timezone, payload, timeout_seconds)
    CROSS JOIN LATERAL (
        SELECT CASE
            WHEN n.due_at IS NOT NULL THEN n.due_at
            WHEN n.due_after_us = 0 THEN clock.now
            ELSE least(clock.now + n.due_after_us * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
        END AS run_at
    ) AS due
)
SELECT now FROM clock
