-- Due tasks that a claim may take: of each wanted topic and priority the first ?3 that never lost an attempt, and of
-- each wanted topic the first ?4 that did.
-- Probes each priority of a topic by itself: a scan over all of them would read every future task on its way.
WITH RECURSIVE wanted (topic) AS (
    SELECT value FROM json_each(?2)
), levels (topic, priority) AS (
    SELECT w.topic, (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = w.topic ORDER BY priority DESC LIMIT 1)
    FROM wanted AS w
    UNION ALL
    SELECT l.topic, (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = l.topic AND priority < l.priority ORDER BY priority DESC LIMIT 1)
    FROM levels AS l
    WHERE l.priority IS NOT NULL
), suspects AS (
    SELECT s.rowid AS line, s.topic, s.priority, s.run_at, s.id, s.lost, row_number() OVER (
        PARTITION BY s.topic ORDER BY s.priority DESC, s.run_at, s.id) AS place
    FROM punctual_tasks AS s INDEXED BY punctual_tasks_suspect
    WHERE ?4 > 0 AND s.status = 'pending' AND s.lost > 0 AND s.run_at <= ?1 AND s.topic IN (SELECT topic FROM wanted)
        AND (s.serial_key IS NULL OR s.id = (
            SELECT id FROM punctual_tasks INDEXED BY punctual_tasks_serial
            WHERE topic = s.topic AND serial_key = s.serial_key ORDER BY first_run_at, id LIMIT 1))
        AND (s.serial_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_serial_running
            WHERE topic = s.topic AND serial_key = s.serial_key AND status = 'running'))
)
SELECT t.rowid AS line, t.topic, t.priority, t.run_at, t.id, t.lost
FROM levels AS l
CROSS JOIN punctual_tasks AS t
WHERE l.priority IS NOT NULL AND t.rowid IN (
    SELECT d.rowid
    FROM punctual_tasks AS d INDEXED BY punctual_tasks_due
    WHERE d.status = 'pending' AND d.topic = l.topic AND d.priority = l.priority AND d.run_at <= ?1 AND d.lost = 0
        AND (d.serial_key IS NULL OR d.id = (
            SELECT id FROM punctual_tasks INDEXED BY punctual_tasks_serial
            WHERE topic = d.topic AND serial_key = d.serial_key ORDER BY first_run_at, id LIMIT 1))
        AND (d.serial_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_serial_running
            WHERE topic = d.topic AND serial_key = d.serial_key AND status = 'running'))
    ORDER BY d.run_at, d.id
    LIMIT ?3)
UNION ALL
SELECT line, topic, priority, run_at, id, lost FROM suspects WHERE place <= ?4
