-- What happened after a place in the order of events: attempts that began, and tasks that ended.
SELECT is_end, at, attempt, task_id
FROM (
    (SELECT false AS is_end, a.started_at AS at, a.number AS attempt, a.task_id
     FROM punctual_attempts AS a
     WHERE a.started_at >= $1 AND (a.started_at, a.task_id, false, a.number) > ($1, $3, $4, $5)
     ORDER BY a.started_at, a.task_id, a.number LIMIT $2)
    UNION ALL
    (SELECT false, t.started_at, t.attempt, t.id
     FROM punctual_tasks AS t
     WHERE t.status = 'running' AND t.started_at >= $1
        AND (t.started_at, t.id, false, t.attempt) > ($1, $3, $4, $5)
     ORDER BY t.started_at, t.id LIMIT $2)
    UNION ALL
    (SELECT false, h.started_at, h.attempt, h.id
     FROM punctual_task_history AS h
     WHERE h.completed_at >= $1 AND h.started_at >= $1 AND h.last_outcome IS NOT NULL
        AND (h.started_at, h.id, false, h.attempt) > ($1, $3, $4, $5)
        AND NOT EXISTS (SELECT FROM punctual_attempts AS a WHERE a.task_id = h.id AND a.epoch = h.epoch)
     ORDER BY h.started_at, h.id LIMIT $2)
    UNION ALL
    (SELECT true, h.completed_at, h.attempt, h.id
     FROM punctual_task_history AS h
     WHERE h.completed_at >= $1 AND (h.completed_at, h.id, true, h.attempt) > ($1, $3, $4, $5)
     ORDER BY h.completed_at, h.id LIMIT $2)
) AS happened
ORDER BY at, task_id, is_end, attempt
LIMIT $2
