-- Claims due tasks of one topic, the first $3 by priority, run_at and id, as long as none is due that lost an attempt.
-- Probes each priority by itself: a scan over all of them would read every future task on its way. What was claimed a moment
-- ago stays in the index for a while, and a probe steps over all of it: so that of the common priority is not probed.
WITH RECURSIVE clock AS (
    SELECT now,
        least(now + $5::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') AS lease_ends_at
    FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS c
), levels AS (
    SELECT coalesce((SELECT priority FROM punctual_tasks
                     WHERE status = 'pending' AND topic = $2 AND priority > 0 ORDER BY priority DESC LIMIT 1), 0) AS priority
    UNION ALL
    SELECT (SELECT priority FROM punctual_tasks
            WHERE status = 'pending' AND topic = $2 AND priority < l.priority ORDER BY priority DESC LIMIT 1)
    FROM levels AS l WHERE l.priority IS NOT NULL
)
UPDATE punctual_tasks AS t
SET status = 'running', attempt = attempt + 1, lost = lost + 1, epoch = epoch + 1, lease_owner = $4,
    lease_expires_at = clock.lease_ends_at, started_at = clock.now
FROM clock
WHERE t.ctid = ANY (ARRAY(
    SELECT d.line
    FROM clock, levels AS l CROSS JOIN LATERAL (
        SELECT p.ctid AS line
        FROM punctual_tasks AS p
        WHERE p.status = 'pending' AND p.topic = $2 AND p.priority = l.priority AND p.run_at <= clock.now
            AND p.lost = 0
            AND (p.serial_key IS NULL OR NOT EXISTS (
                SELECT FROM punctual_tasks AS e
                WHERE e.topic = p.topic AND e.serial_key = p.serial_key
                    AND (e.status = 'running' OR (e.first_run_at, e.id) < (p.first_run_at, p.id))))
        ORDER BY p.run_at, p.id
        LIMIT $3
        FOR UPDATE SKIP LOCKED
    ) AS d
    WHERE NOT EXISTS (
        SELECT FROM punctual_tasks AS s
        WHERE s.status = 'pending' AND s.lost > 0 AND s.topic = $2 AND s.run_at <= clock.now)
    -- Level by level from the highest, each in order.
    LIMIT $3))
RETURNING
    id, run_at, payload, created_at, started_at,
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
