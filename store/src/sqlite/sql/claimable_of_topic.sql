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
SELECT
    group_concat(row, char(30)), '[' || group_concat(line) || ']', '[' || group_concat(large) || ']',
    EXISTS (
        SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_suspect
        WHERE status = 'pending' AND lost > 0 AND run_at <= ?1)
FROM (
    SELECT
        d.rowid AS line,
        iif(octet_length(d.payload) > 4096, d.rowid, NULL) AS large,
        concat_ws(char(31), d.rowid, hex(d.id), d.topic, d.run_at, d.created_at,
            -- A large one is read by itself: all of them together could be larger than SQLite allows.
            iif(octet_length(d.payload) <= 4096, d.payload, ''),
            -- What few tasks have; it is as the claim will leave it.
            CASE WHEN d.epoch = 0 AND d.priority = 0 AND d.timezone = 'UTC' AND d.timeout_seconds = 3600
                    AND d.metadata IS NULL AND d.client_request_id IS NULL AND d.dedupe_key IS NULL
                    AND d.serial_key IS NULL AND d.retry IS NULL AND d.schedule_id IS NULL AND d.retry_of IS NULL
                    AND d.rescheduled_from IS NULL
                THEN ''
                ELSE json_array(
                    d.priority, d.attempt + 1, d.lost + 1, d.epoch + 1, d.timezone, d.timeout_seconds, d.snoozes,
                    d.metadata, d.client_request_id, d.dedupe_key, d.serial_key, d.retry, d.error,
                    iif(d.schedule_id IS NULL, NULL, hex(d.schedule_id)), d.scheduled_at,
                    iif(d.retry_of IS NULL, NULL, hex(d.retry_of)),
                    iif(d.rescheduled_from IS NULL, NULL, hex(d.rescheduled_from)))
            END) AS row
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
