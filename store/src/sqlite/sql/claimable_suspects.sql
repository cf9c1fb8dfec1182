-- Due tasks that a claim may take although they lost an attempt: of each wanted topic the first ?3.
SELECT line, topic, priority, run_at, id, lost
FROM (
    SELECT s.rowid AS line, s.topic, s.priority, s.run_at, s.id, s.lost, row_number() OVER (
        PARTITION BY s.topic ORDER BY s.priority DESC, s.run_at, s.id) AS place
    FROM punctual_tasks AS s INDEXED BY punctual_tasks_suspect
    WHERE s.status = 'pending' AND s.lost > 0 AND s.run_at <= ?1 AND s.topic IN (SELECT value FROM json_each(?2))
        AND (s.serial_key IS NULL OR s.id = (
            SELECT id FROM punctual_tasks INDEXED BY punctual_tasks_serial
            WHERE topic = s.topic AND serial_key = s.serial_key ORDER BY first_run_at, id LIMIT 1))
        AND (s.serial_key IS NULL OR NOT EXISTS (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_serial_running
            WHERE topic = s.topic AND serial_key = s.serial_key AND status = 'running')))
WHERE place <= ?3
