-- Fires with where their tasks stand: in the live tasks, in the history, or pruned.
SELECT
    f.id, f.schedule_id, f.kind, f.scheduled_at, f.fired_at, f.reason, f.until_at, f.count, f.tz_version, f.task_id,
    coalesce(t.status, h.status), coalesce(t.attempt, h.attempt, 0), coalesce(t.started_at, h.started_at),
    h.completed_at, coalesce(t.error, h.error), coalesce(t.status = 'running' AND t.lease_expires_at IS NULL, false)
FROM punctual_fires AS f
LEFT JOIN punctual_tasks AS t ON t.id = f.task_id
LEFT JOIN punctual_task_history AS h ON h.id = f.task_id
