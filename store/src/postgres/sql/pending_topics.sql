-- Topics in ranges of names that have pending tasks: how many are due, and when the next of the others is. Steps from
-- topic to topic and from priority to priority, whatever waits in between.
WITH RECURSIVE clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), names AS (
    SELECT r.high, (
        SELECT topic FROM punctual_tasks
        WHERE status = 'pending' AND topic >= r.low AND topic < r.high ORDER BY topic LIMIT 1) AS topic
    FROM unnest($2::text[], $3::text[]) AS r (low, high)
    UNION ALL
    SELECT n.high, (
        SELECT topic FROM punctual_tasks
        WHERE status = 'pending' AND topic > n.topic AND topic < n.high ORDER BY topic LIMIT 1)
    FROM names AS n WHERE n.topic IS NOT NULL
)
SELECT n.topic, p.due, p.next_due_at
FROM clock, (SELECT DISTINCT topic FROM (SELECT topic FROM names WHERE topic IS NOT NULL LIMIT $4) AS f) AS n
CROSS JOIN LATERAL (
    WITH RECURSIVE levels AS (
        (SELECT priority FROM punctual_tasks
         WHERE status = 'pending' AND topic = n.topic ORDER BY priority DESC LIMIT 1)
        UNION ALL
        SELECT (SELECT priority FROM punctual_tasks
                WHERE status = 'pending' AND topic = n.topic AND priority < l.priority ORDER BY priority DESC LIMIT 1)
        FROM levels AS l WHERE l.priority IS NOT NULL
    )
    SELECT
        sum((
            SELECT count(*) FROM (
                SELECT FROM punctual_tasks
                WHERE status = 'pending' AND topic = n.topic AND priority = l.priority AND run_at <= clock.now
                LIMIT $5) AS d))::bigint AS due,
        min((
            SELECT run_at FROM punctual_tasks
            WHERE status = 'pending' AND topic = n.topic AND priority = l.priority AND run_at > clock.now
            ORDER BY run_at LIMIT 1)) AS next_due_at
    FROM levels AS l WHERE l.priority IS NOT NULL
) AS p
ORDER BY n.topic
