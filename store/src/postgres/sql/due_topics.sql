-- Topics with a due task, by name: steps from topic to topic and from priority to priority, whatever waits in between.
WITH RECURSIVE names AS (
    (SELECT topic FROM punctual_tasks WHERE status = 'pending' AND topic > $2 ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (SELECT topic FROM punctual_tasks WHERE status = 'pending' AND topic > n.topic ORDER BY topic LIMIT 1)
    FROM names AS n WHERE n.topic IS NOT NULL
)
SELECT n.topic
FROM names AS n
WHERE n.topic IS NOT NULL AND EXISTS (
    WITH RECURSIVE levels AS (
        (SELECT priority FROM punctual_tasks
         WHERE status = 'pending' AND topic = n.topic ORDER BY priority DESC LIMIT 1)
        UNION ALL
        SELECT (SELECT priority FROM punctual_tasks
                WHERE status = 'pending' AND topic = n.topic AND priority < l.priority ORDER BY priority DESC LIMIT 1)
        FROM levels AS l WHERE l.priority IS NOT NULL
    )
    SELECT FROM levels AS l
    -- With EXISTS here, all that is due might be read to be joined.
    WHERE (
        SELECT true FROM punctual_tasks
        WHERE status = 'pending' AND topic = n.topic AND priority = l.priority
            AND run_at <= coalesce($1::timestamptz, statement_timestamp())
        ORDER BY run_at LIMIT 1)
)
LIMIT $3
