-- What happened after the place (?1, ?3, ?4, ?5) in the order of events: attempts that began, each once, and tasks that ended.
WITH happened (task_id, kind, at, attempt) AS MATERIALIZED (
    SELECT * FROM (
        SELECT id, 0, started_at, attempt
        FROM punctual_tasks INDEXED BY punctual_tasks_lease
        WHERE lease_expires_at IS NOT NULL AND status = 'running' AND started_at >= ?1
            AND (started_at, id, 0, attempt) > (?1, ?3, ?4, ?5)
        ORDER BY started_at, id LIMIT ?2)
    UNION ALL
    SELECT * FROM (
        SELECT task_id, 0, started_at, number
        FROM punctual_attempts INDEXED BY punctual_attempts_started_at
        WHERE started_at >= ?1 AND (started_at, task_id, 0, number) > (?1, ?3, ?4, ?5)
        ORDER BY started_at, task_id, number LIMIT ?2)
    UNION ALL
    -- Attempts that have no row of their own; none began after its task ended.
    SELECT * FROM (
        SELECT h.id, 0, h.started_at, h.attempt
        FROM punctual_task_history AS h INDEXED BY punctual_task_history_completed_at
        WHERE h.completed_at >= ?1 AND h.started_at >= ?1 AND h.last_outcome = 'completed'
            AND (h.started_at, h.id, 0, h.attempt) > (?1, ?3, ?4, ?5)
            AND NOT EXISTS (SELECT 1 FROM punctual_attempts AS a WHERE a.task_id = h.id AND a.epoch = h.epoch)
        ORDER BY h.started_at, h.id LIMIT ?2)
    UNION ALL
    SELECT * FROM (
        SELECT id, 1, completed_at, attempt
        FROM punctual_task_history INDEXED BY punctual_task_history_completed_at
        WHERE completed_at >= ?1 AND (completed_at, id, 1, attempt) > (?1, ?3, ?4, ?5)
        ORDER BY completed_at, id LIMIT ?2)
    ORDER BY 3, 1, 2, 4
    LIMIT ?2
)
SELECT
    e.kind, e.at, e.attempt, id, topic, status, run_at, timezone, payload, metadata, client_request_id, dedupe_key,
    serial_key, priority, timeout_seconds, retry, t.attempt, lost, snoozes, epoch, lease_owner, lease_expires_at,
    NULL AS result, error, schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
    NULL AS completed_at, e.task_id
FROM happened AS e CROSS JOIN punctual_tasks AS t ON t.id = e.task_id
UNION ALL
SELECT
    e.kind, e.at, e.attempt, id, topic, status, run_at, timezone, payload, metadata, client_request_id, dedupe_key,
    serial_key, priority, timeout_seconds, retry, h.attempt, lost, snoozes, epoch, NULL, NULL,
    result, error, schedule_id, scheduled_at, retry_of, rescheduled_from, created_at, started_at,
    completed_at, e.task_id
FROM happened AS e CROSS JOIN punctual_task_history AS h ON h.id = e.task_id
ORDER BY 2, 32, 1, 3
