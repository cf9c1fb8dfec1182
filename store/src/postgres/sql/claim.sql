-- Claims due tasks: per topic at most its slots, in the order of priority, run_at and id; no task is claimed twice.
-- With $7, tasks that have a serial key are left out.
-- Probes each priority of a topic by itself: a scan over all of them would read every future task on its way.
WITH clock AS (
    SELECT now,
        least(now + $5::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') AS lease_ends_at
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS c
), wanted AS (
    SELECT topic, slots FROM unnest($2::text[], $3::integer[]) AS w (topic, slots)
), suspect AS MATERIALIZED (
    -- Tasks that have lost an attempt, where they are limited ($6 >= 0).
    SELECT s.line, s.topic, s.priority, s.run_at, s.id
    FROM clock, wanted AS w CROSS JOIN LATERAL (
        SELECT t.ctid AS line, t.topic, t.priority, t.run_at, t.id
        FROM punctual_tasks AS t
        WHERE t.status = 'pending' AND t.lost > 0 AND t.topic = w.topic AND t.run_at <= clock.now
            AND (t.serial_key IS NULL OR NOT $7 AND NOT EXISTS (
                SELECT FROM punctual_tasks AS e
                WHERE e.topic = t.topic AND e.serial_key = t.serial_key
                    AND (e.status = 'running' OR (e.first_run_at, e.id) < (t.first_run_at, t.id))))
        ORDER BY t.priority DESC, t.run_at, t.id
        LIMIT least(w.slots, greatest($6::integer, 0))
        FOR UPDATE SKIP LOCKED
    ) AS s
    ORDER BY s.priority DESC, s.run_at, s.id
    LIMIT greatest($6::integer, 0)
), trusted AS MATERIALIZED (
    SELECT p.line, w.topic, p.priority, p.run_at, p.id
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
        SELECT d.line, d.priority, d.run_at, d.id
        FROM levels AS l CROSS JOIN LATERAL (
            SELECT t.ctid AS line, t.priority, t.run_at, t.id
            FROM punctual_tasks AS t
            WHERE t.status = 'pending' AND t.topic = w.topic AND t.priority = l.priority AND t.run_at <= clock.now
                AND (t.lost = 0 OR $6::integer < 0)
                AND (t.serial_key IS NULL OR NOT $7 AND NOT EXISTS (
                    SELECT FROM punctual_tasks AS e
                    WHERE e.topic = t.topic AND e.serial_key = t.serial_key
                        AND (e.status = 'running' OR (e.first_run_at, e.id) < (t.first_run_at, t.id))))
            ORDER BY t.run_at, t.id
            LIMIT w.slots
            FOR UPDATE SKIP LOCKED
        ) AS d
        -- Level by level from the highest, each in order: sorting them would lock the surplus of every level first.
        LIMIT w.slots
    ) AS p
), ranked AS (
    SELECT line, topic, row_number() OVER (PARTITION BY topic ORDER BY priority DESC, run_at, id) AS place
    FROM (SELECT * FROM suspect UNION ALL SELECT * FROM trusted) AS due
)
UPDATE punctual_tasks AS t
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = $4,
    lease_expires_at = clock.lease_ends_at, started_at = clock.now
FROM clock
WHERE t.ctid = ANY (
    CASE WHEN EXISTS (SELECT FROM suspect)
        THEN ARRAY(SELECT r.line FROM ranked AS r JOIN wanted AS w ON w.topic = r.topic WHERE r.place <= w.slots)
        ELSE ARRAY(SELECT line FROM trusted) END)
RETURNING
    id, topic, run_at, payload, created_at, started_at,
    -- What few tasks have comes in one piece: a column costs time for every row, also where it is null.
    CASE WHEN epoch = 1 AND priority = 0 AND timezone = 'UTC' AND timeout_seconds = 3600 AND metadata IS NULL
            AND client_request_id IS NULL AND dedupe_key IS NULL AND serial_key IS NULL AND retry IS NULL
            AND schedule_id IS NULL AND retry_of IS NULL AND rescheduled_from IS NULL
        THEN NULL
        ELSE json_build_array(
            priority, attempt, lost, epoch, timezone, timeout_seconds, snoozes, metadata, client_request_id, dedupe_key,
            serial_key, retry, error, schedule_id, (extract(epoch FROM scheduled_at) * 1000000)::bigint, retry_of,
            rescheduled_from)::text
    END
