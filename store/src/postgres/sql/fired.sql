-- What fired from $1 until before $2, by schedule: the first $3 fires that made a task, and the first $3 failures of such tasks. Of the
-- schedules $4 at the most, those that failed first, then those that fired the least; with how many there are in all.
SELECT g.schedule_id, s.name, g.at, g.fires, g.failures, g.all_fires, g.all_failures
FROM (
    SELECT
        schedule_id, min(at) AS at, sum(fired)::bigint AS fires, sum(failed)::bigint AS failures,
        (sum(sum(fired)) OVER ())::bigint AS all_fires, (sum(sum(failed)) OVER ())::bigint AS all_failures
    FROM (
        SELECT * FROM (
            SELECT schedule_id, fired_at AS at, 1 AS fired, 0 AS failed
            FROM punctual_fires
            WHERE fired_at >= $1 AND fired_at < $2 AND reason IS NULL
            ORDER BY fired_at
            LIMIT $3
        ) AS f
        UNION ALL
        SELECT * FROM (
            SELECT schedule_id, completed_at AS at, 0 AS fired, 1 AS failed
            FROM punctual_task_history
            WHERE status = 'failed' AND schedule_id IS NOT NULL AND completed_at >= $1 AND completed_at < $2
            ORDER BY completed_at
            LIMIT $3
        ) AS h
    ) AS x
    GROUP BY schedule_id
    ORDER BY sum(failed) = 0, sum(fired), min(at), schedule_id
    LIMIT $4
) AS g
LEFT JOIN punctual_schedules AS s ON s.id = g.schedule_id
ORDER BY g.failures = 0, g.fires, g.at, g.schedule_id
