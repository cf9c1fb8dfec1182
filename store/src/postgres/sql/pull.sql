-- Claims due tasks for a worker: the first $7 of all its topics by priority, run_at and id, and of each topic no more than
-- its rate ($3) and its concurrency ($4) leave. Nobody else claims from these topics meanwhile: the caller has their
-- locks. Payloads have $8 bytes together, but for a single one.
WITH clock AS (
    SELECT now,
        least(now + $6::integer * interval '1 second', timestamptz '9999-12-31 23:59:59.999999+00') AS lease_ends_at
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS c
), wanted AS MATERIALIZED (
    SELECT w.topic, least(w.slots, w.concurrency - (
        SELECT count(*) FROM punctual_tasks AS r WHERE r.topic = w.topic AND r.lease_seconds IS NOT NULL)) AS slots
    FROM unnest($2::text[], $3::bigint[], $4::bigint[]) AS w (topic, slots, concurrency)
), due AS MATERIALIZED (
    SELECT p.*
    FROM clock, wanted AS w CROSS JOIN LATERAL (
        WITH RECURSIVE levels AS (
            -- The common priority is taken for granted, as in claim_topic.
            SELECT coalesce((SELECT priority FROM punctual_tasks
                             WHERE status = 'pending' AND topic = w.topic AND priority > 0
                             ORDER BY priority DESC LIMIT 1), 0) AS priority
            UNION ALL
            SELECT (SELECT priority FROM punctual_tasks
                    WHERE status = 'pending' AND topic = w.topic AND priority < l.priority
                    ORDER BY priority DESC LIMIT 1)
            FROM levels AS l WHERE l.priority IS NOT NULL
        )
        SELECT d.line, d.priority, d.run_at, d.id, d.bytes
        FROM levels AS l CROSS JOIN LATERAL (
            SELECT t.ctid AS line, t.priority, t.run_at, t.id, octet_length(t.payload) AS bytes
            FROM punctual_tasks AS t
            WHERE t.status = 'pending' AND t.topic = w.topic AND t.priority = l.priority AND t.run_at <= clock.now
                AND (t.serial_key IS NULL OR NOT EXISTS (
                    SELECT FROM punctual_tasks AS e
                    WHERE e.topic = t.topic AND e.serial_key = t.serial_key
                        AND (e.status = 'running' OR (e.first_run_at, e.id) < (t.first_run_at, t.id))))
            ORDER BY t.run_at, t.id
            LIMIT w.slots
        ) AS d
        LIMIT w.slots
    ) AS p
    WHERE w.slots > 0
), ranked AS (
    SELECT line, row_number() OVER before AS place, sum(bytes) OVER before AS bytes
    FROM due
    WINDOW before AS (ORDER BY priority DESC, run_at, id ROWS UNBOUNDED PRECEDING)
)
UPDATE punctual_tasks AS t
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = $5,
    lease_expires_at = clock.lease_ends_at, lease_seconds = $6, started_at = clock.now
FROM clock
-- What was cancelled since the look is not pending any more.
WHERE t.status = 'pending' AND t.ctid = ANY (
    ARRAY(SELECT r.line FROM ranked AS r WHERE r.place <= $7 AND (r.place = 1 OR r.bytes <= $8)))
RETURNING
    id, topic, run_at, payload, created_at, started_at,
    -- What few tasks have comes in one piece, as in claim.sql.
    CASE WHEN epoch = 1 AND priority = 0 AND timezone = 'UTC' AND timeout_seconds = 3600 AND metadata IS NULL
            AND client_request_id IS NULL AND dedupe_key IS NULL AND serial_key IS NULL AND retry IS NULL
            AND schedule_id IS NULL AND retry_of IS NULL AND rescheduled_from IS NULL
        THEN NULL
        ELSE json_build_array(
            priority, attempt, lost, epoch, timezone, timeout_seconds, snoozes, metadata, client_request_id, dedupe_key,
            serial_key, retry, error, schedule_id, (extract(epoch FROM scheduled_at) * 1000000)::bigint, retry_of,
            rescheduled_from)::text
    END
