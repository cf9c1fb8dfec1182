-- Due tasks of one topic that never lost an attempt, the first ?3 by priority, run_at and id, in one piece as in
-- claimable_rows.sql, with the numbers of its rows. The last column says whether a task is due in any topic that lost an
-- attempt: then nothing is answered, and the whole claim decides.
-- Probes each priority by itself: a scan over all of them would read every future task on its way.
WITH RECURSIVE levels (priority) AS (
    SELECT (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = ?2 ORDER BY priority DESC LIMIT 1)
    UNION ALL
    SELECT (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = ?2 AND priority < l.priority ORDER BY priority DESC LIMIT 1)
    FROM levels AS l
    WHERE l.priority IS NOT NULL
)
SELECT group_concat(
    line || char(31) || hex(id) || char(31) || topic || char(31) || run_at || char(31) || created_at || char(31)
        -- A large one is read by itself: all of them together could be larger than SQLite allows.
        || iif(octet_length(payload) <= 4096, payload, '') || char(31)
        -- What few tasks have; it is as the claim will leave it.
        || CASE WHEN epoch = 0 AND priority = 0 AND timezone = 'UTC' AND timeout_seconds = 3600 AND metadata IS NULL
                AND client_request_id IS NULL AND dedupe_key IS NULL AND serial_key IS NULL AND retry IS NULL
                AND schedule_id IS NULL AND retry_of IS NULL AND rescheduled_from IS NULL
            THEN ''
            ELSE json_array(
                priority, attempt + 1, lost + 1, epoch + 1, timezone, timeout_seconds, snoozes, metadata,
                client_request_id, dedupe_key, serial_key, retry, error,
                iif(schedule_id IS NULL, NULL, hex(schedule_id)), scheduled_at,
                iif(retry_of IS NULL, NULL, hex(retry_of)),
                iif(rescheduled_from IS NULL, NULL, hex(rescheduled_from)))
        END,
    char(30)),
    '[' || group_concat(line) || ']',
    '[' || group_concat(iif(octet_length(payload) > 4096, line, NULL)) || ']',
    EXISTS (
        SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_suspect
        WHERE status = 'pending' AND lost > 0 AND run_at <= ?1)
FROM (
    SELECT d.rowid AS line, d.*
    FROM levels AS l
    CROSS JOIN punctual_tasks AS d INDEXED BY punctual_tasks_due
    WHERE NOT EXISTS (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_suspect
            WHERE status = 'pending' AND lost > 0 AND run_at <= ?1)
        AND d.status = 'pending' AND d.topic = ?2 AND d.priority = l.priority AND d.run_at <= ?1 AND d.lost = 0
        -- Of a serial key only the first that has not ended, and only while none of them runs.
        AND (d.serial_key IS NULL OR d.id = (
            SELECT id FROM punctual_tasks INDEXED BY punctual_tasks_serial
            WHERE topic = d.topic AND serial_key = d.serial_key ORDER BY first_run_at, id LIMIT 1))
        AND (d.serial_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_serial_running
            WHERE topic = d.topic AND serial_key = d.serial_key AND status = 'running'))
    -- The levels come from the highest down, and each in the order of its index.
    LIMIT ?3)
