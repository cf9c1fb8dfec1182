-- Due tasks that a worker may claim: of each topic and priority the first ?3. Probes each priority of a topic by itself, as
-- claimable.sql does.
WITH RECURSIVE levels (topic, priority) AS (
    SELECT w.value, (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = w.value ORDER BY priority DESC LIMIT 1)
    FROM json_each(?2) AS w
    UNION ALL
    SELECT l.topic, (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = l.topic AND priority < l.priority ORDER BY priority DESC LIMIT 1)
    FROM levels AS l
    WHERE l.priority IS NOT NULL
)
SELECT t.rowid, t.topic, t.priority, t.run_at, t.id, octet_length(t.payload)
FROM levels AS l
CROSS JOIN punctual_tasks AS t
WHERE l.priority IS NOT NULL AND t.rowid IN (
    SELECT d.rowid
    FROM punctual_tasks AS d INDEXED BY punctual_tasks_due
    WHERE d.status = 'pending' AND d.topic = l.topic AND d.priority = l.priority AND d.run_at <= ?1
        -- Of a serial key only the first that has not ended, and only while none of them runs.
        AND (d.serial_key IS NULL OR d.id = (
            SELECT id FROM punctual_tasks INDEXED BY punctual_tasks_serial
            WHERE topic = d.topic AND serial_key = d.serial_key ORDER BY first_run_at, id LIMIT 1))
        AND (d.serial_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_serial_running
            WHERE topic = d.topic AND serial_key = d.serial_key AND status = 'running'))
    ORDER BY d.run_at, d.id
    LIMIT ?3)
