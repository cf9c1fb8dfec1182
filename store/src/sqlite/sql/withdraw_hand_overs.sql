-- Notes that the time of cancelled tasks in their queues is up. One whose hand-over nobody noted may have been made all the same:
-- no task runs by the epoch 0.
INSERT INTO punctual_hand_overs (task_id, epoch, prefix, queue, job_id, first_attempt, handed_over_at, ends_at)
SELECT unhex(value ->> 0), 0, value ->> 1, value ->> 2, value ->> 3, 0, ?2, ?2 FROM json_each(?1) WHERE true
ON CONFLICT (task_id) DO UPDATE SET ends_at = excluded.ends_at WHERE ends_at > excluded.ends_at
