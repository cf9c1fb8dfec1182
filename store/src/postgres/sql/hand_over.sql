-- Notes that a queue has accepted a task that runs by this epoch: it runs without a lease from now on. Answers its id, if it did.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), handed AS (
    UPDATE punctual_tasks SET lease_expires_at = NULL, lease_seconds = NULL
    WHERE id = $2 AND epoch = $3 AND status <> 'pending'
    RETURNING id, epoch, attempt
), known AS (
    INSERT INTO punctual_queues (prefix, queue) SELECT $4, $5 FROM handed ON CONFLICT DO NOTHING
)
INSERT INTO punctual_hand_overs (task_id, epoch, prefix, queue, job_id, first_attempt, handed_over_at, ends_at)
SELECT id, epoch, $4, $5, $6, attempt, clock.now,
    least(clock.now + $7::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
FROM handed, clock
ON CONFLICT (task_id) DO UPDATE
SET epoch = excluded.epoch, prefix = excluded.prefix, queue = excluded.queue, job_id = excluded.job_id,
    first_attempt = excluded.first_attempt, handed_over_at = excluded.handed_over_at, ends_at = excluded.ends_at,
    progress = NULL
RETURNING task_id
