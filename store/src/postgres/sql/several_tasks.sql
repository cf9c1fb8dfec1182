-- Instants of a schedule with more than one task of their own: one that retries or replaces another is not counted.
SELECT scheduled_at, count(*)
FROM (
    SELECT scheduled_at FROM punctual_tasks
    WHERE schedule_id = $1 AND scheduled_at >= $2 AND scheduled_at < $3
        AND retry_of IS NULL AND rescheduled_from IS NULL
    UNION ALL
    SELECT scheduled_at FROM punctual_task_history
    WHERE schedule_id = $1 AND scheduled_at >= $2 AND scheduled_at < $3
        AND retry_of IS NULL AND rescheduled_from IS NULL
) AS t
GROUP BY scheduled_at
HAVING count(*) > 1
ORDER BY scheduled_at
LIMIT $4
