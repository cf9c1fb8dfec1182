-- Hand-overs, each with its task if it counts.
SELECT
    o.task_id, o.epoch, o.prefix, o.queue, o.job_id, o.first_attempt, o.handed_over_at, o.ends_at, o.progress,
    t.topic, t.attempt, t.started_at, t.timeout_seconds,
    r.task_id IS NOT NULL, t.schedule_id IS NOT NULL, t.serial_key IS NOT NULL
FROM punctual_hand_overs AS o
LEFT JOIN punctual_tasks AS t
    ON t.id = o.task_id AND t.epoch = o.epoch AND t.status <> 'pending' AND t.lease_expires_at IS NULL
-- A task that rests has noted its attempt as failed, by the epoch before.
LEFT JOIN punctual_attempts AS r
    ON r.task_id = t.id AND r.epoch = t.epoch - 1 AND r.number = t.attempt AND r.outcome = 'failed'
