-- Notes that the time of cancelled tasks in their queues is up. One whose hand-over nobody noted may have been made all the same:
-- no task runs by the epoch 0.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), given AS (
    SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[]) AS given (task_id, prefix, queue, job_id)
), known AS (
    INSERT INTO punctual_queues (prefix, queue) SELECT DISTINCT prefix, queue FROM given ORDER BY prefix, queue
    ON CONFLICT DO NOTHING
)
INSERT INTO punctual_hand_overs AS o
    (task_id, epoch, prefix, queue, job_id, first_attempt, handed_over_at, ends_at)
SELECT task_id, 0, prefix, queue, job_id, 0, now, now FROM given, clock ORDER BY task_id
ON CONFLICT (task_id) DO UPDATE SET ends_at = excluded.ends_at WHERE o.ends_at > excluded.ends_at
