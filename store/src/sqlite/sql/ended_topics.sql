-- The topics of ended tasks: steps from one to the next.
WITH RECURSIVE names (topic) AS (
    SELECT min(topic) FROM punctual_task_history
    UNION ALL
    SELECT (SELECT min(topic) FROM punctual_task_history WHERE topic > n.topic)
    FROM names AS n
    WHERE n.topic IS NOT NULL
)
SELECT topic FROM names WHERE topic IS NOT NULL
