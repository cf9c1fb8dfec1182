-- Notes which queue has accepted a task.
INSERT INTO punctual_hand_overs (task_id, epoch, prefix, queue, job_id, first_attempt, handed_over_at, ends_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
ON CONFLICT (task_id) DO UPDATE
SET epoch = excluded.epoch, prefix = excluded.prefix, queue = excluded.queue, job_id = excluded.job_id,
    first_attempt = excluded.first_attempt, handed_over_at = excluded.handed_over_at, ends_at = excluded.ends_at,
    progress = NULL
