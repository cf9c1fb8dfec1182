-- Notes that a queue may have a job of a task that has ended, unless its hand-over is known. No task runs by the epoch 0.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), known AS (
    INSERT INTO punctual_queues (prefix, queue) VALUES ($3, $4) ON CONFLICT DO NOTHING
)
INSERT INTO punctual_hand_overs (task_id, epoch, prefix, queue, job_id, first_attempt, handed_over_at, ends_at)
SELECT $2, 0, $3, $4, $5, 0, now, now FROM clock
ON CONFLICT DO NOTHING
