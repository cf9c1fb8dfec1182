-- The topics that have ended tasks: steps from topic to topic.
WITH RECURSIVE names AS (
    (SELECT topic FROM punctual_task_history ORDER BY topic LIMIT 1)
    UNION ALL
    SELECT (SELECT topic FROM punctual_task_history WHERE topic > n.topic ORDER BY topic LIMIT 1)
    FROM names AS n WHERE n.topic IS NOT NULL
)
SELECT topic FROM names WHERE topic IS NOT NULL
