-- The newest fires of each of these schedules with where their tasks stand, in the columns of fires.sql.
SELECT
    f.id, f.schedule_id, f.kind, f.scheduled_at, f.fired_at, f.reason, f.until_at, f.count, f.tz_version, f.task_id,
    coalesce(t.status, h.status), coalesce(t.attempt, h.attempt, 0), coalesce(t.started_at, h.started_at),
    h.completed_at, left(coalesce(t.error, h.error), 300),
    coalesce(t.status = 'running' AND t.lease_expires_at IS NULL, false)
FROM unnest($1::uuid[]) AS g (id)
CROSS JOIN LATERAL (
    SELECT n.* FROM punctual_fires AS n WHERE n.schedule_id = g.id ORDER BY n.id DESC LIMIT $2
) AS f
LEFT JOIN punctual_tasks AS t ON t.id = f.task_id
LEFT JOIN punctual_task_history AS h ON h.id = f.task_id
ORDER BY f.schedule_id, f.id DESC
