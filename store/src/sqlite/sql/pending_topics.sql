-- Topics in ranges of names that have pending tasks: how many are due, and when the next of the others is. Steps from
-- topic to topic and from priority to priority, whatever waits in between.
WITH RECURSIVE names (high, topic) AS (
    SELECT r.value ->> 1, (
        SELECT topic FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic >= r.value ->> 0 AND topic < r.value ->> 1 ORDER BY topic LIMIT 1)
    FROM json_each(?2) AS r
    UNION ALL
    SELECT n.high, (
        SELECT topic FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic > n.topic AND topic < n.high ORDER BY topic LIMIT 1)
    FROM names AS n
    WHERE n.topic IS NOT NULL
    LIMIT ?3
), levels (topic, priority) AS (
    SELECT n.topic, (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = n.topic ORDER BY priority DESC LIMIT 1)
    FROM (SELECT DISTINCT topic FROM names WHERE topic IS NOT NULL) AS n
    UNION ALL
    SELECT l.topic, (
        SELECT priority FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = l.topic AND priority < l.priority ORDER BY priority DESC LIMIT 1)
    FROM levels AS l
    WHERE l.priority IS NOT NULL
)
SELECT l.topic,
    sum((
        SELECT count(*) FROM (
            SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_due
            WHERE status = 'pending' AND topic = l.topic AND priority = l.priority AND run_at <= ?1
            LIMIT ?4))),
    min((
        SELECT min(run_at) FROM punctual_tasks INDEXED BY punctual_tasks_due
        WHERE status = 'pending' AND topic = l.topic AND priority = l.priority AND run_at > ?1))
FROM levels AS l
WHERE l.priority IS NOT NULL
GROUP BY l.topic
ORDER BY l.topic
