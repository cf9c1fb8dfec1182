-- The newest fires of each of these schedules with where their tasks stand, in the columns of fires.sql.
SELECT
    f.id, f.schedule_id, f.kind, f.scheduled_at, f.fired_at, f.reason, f.until_at, f.count, f.tz_version, f.task_id,
    coalesce(t.status, h.status), coalesce(t.attempt, h.attempt, 0), coalesce(t.started_at, h.started_at),
    h.completed_at, substr(coalesce(t.error, h.error), 1, 300),
    coalesce(t.status = 'running' AND t.lease_expires_at IS NULL, false)
FROM json_each(?1) AS g
CROSS JOIN punctual_fires AS f ON f.id IN (
    SELECT n.id FROM punctual_fires AS n INDEXED BY punctual_fires_newest
    WHERE n.schedule_id = unhex(g.value) ORDER BY n.id DESC LIMIT ?2
)
LEFT JOIN punctual_tasks AS t ON t.id = f.task_id
LEFT JOIN punctual_task_history AS h ON h.id = f.task_id
ORDER BY f.schedule_id, f.id DESC
