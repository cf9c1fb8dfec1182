-- What happened since an instant, oldest first: attempts that began, and tasks that ended.
SELECT 'arrived', a.started_at AS at, a.number, a.task_id
FROM punctual_attempts AS a WHERE a.started_at >= $1
UNION ALL
SELECT 'arrived', t.started_at, t.attempt, t.id
FROM punctual_tasks AS t WHERE t.status = 'running' AND t.started_at >= $1
UNION ALL
SELECT 'arrived', h.started_at, h.attempt, h.id
FROM punctual_task_history AS h
WHERE h.completed_at >= $1 AND h.started_at >= $1 AND h.last_outcome IS NOT NULL
    AND NOT EXISTS (SELECT FROM punctual_attempts AS a WHERE a.task_id = h.id AND a.epoch = h.epoch)
UNION ALL
SELECT 'ended', h.completed_at, h.attempt, h.id
FROM punctual_task_history AS h WHERE h.completed_at >= $1
ORDER BY at, 4, 1
LIMIT $2
