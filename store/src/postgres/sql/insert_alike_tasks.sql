-- insert_plain_tasks for tasks that differ in nothing but their ids and payloads: what they share is said once. Answers when.
WITH clock AS MATERIALIZED (
    SELECT now, CASE
        WHEN $5::timestamptz IS NOT NULL THEN $5
        WHEN $6::bigint = 0 THEN now
        ELSE least(now + $6 * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
    END AS run_at
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS c
), written AS (
    INSERT INTO punctual_tasks (
        id, topic, priority, run_at, first_run_at, timezone, payload, timeout_seconds, created_at
    )
    SELECT n.id, $3::text, $4::integer, clock.run_at, clock.run_at, $7::text, n.payload, $9::integer, clock.now
    FROM clock CROSS JOIN unnest($2::uuid[], $8::text[]) AS n (id, payload)
)
SELECT now FROM clock
