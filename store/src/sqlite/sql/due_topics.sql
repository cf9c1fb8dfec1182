-- Topics with a due task, by name: steps from topic to topic and from priority to priority, whatever waits in between.
WITH RECURSIVE names (topic) AS (
    SELECT (
        SELECT topic FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic > ?2 ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (
        SELECT topic FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic > n.topic ORDER BY topic LIMIT 1)
    FROM names AS n
    WHERE n.topic IS NOT NULL
)
SELECT n.topic
FROM names AS n
WHERE n.topic IS NOT NULL AND EXISTS (
    WITH RECURSIVE levels (priority) AS (
        SELECT (
            SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
            WHERE status = 'pending' AND topic = n.topic ORDER BY priority DESC LIMIT 1)
        UNION ALL
        SELECT (
            SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
            WHERE status = 'pending' AND topic = n.topic AND priority < l.priority ORDER BY priority DESC LIMIT 1)
        FROM levels AS l
        WHERE l.priority IS NOT NULL
    )
    SELECT 1 FROM levels AS l
    WHERE l.priority IS NOT NULL AND EXISTS (
        SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = n.topic AND priority = l.priority AND run_at <= ?1)
)
LIMIT ?3
