-- Notes that a queue may have a job of a task that has ended, unless its hand-over is known. No task runs by the epoch 0.
INSERT INTO punctual_hand_overs (task_id, epoch, prefix, queue, job_id, first_attempt, handed_over_at, ends_at)
VALUES (?1, 0, ?2, ?3, ?4, 0, ?5, ?5)
ON CONFLICT DO NOTHING
