-- How attempts ended that were settled earlier: by the history where they ended the task, else by their own rows.
SELECT h.id, h.epoch, h.status, h.last_outcome
FROM json_each(?1) AS e
CROSS JOIN punctual_task_history AS h ON h.id = unhex(e.value ->> 0) AND h.epoch = e.value ->> 1
WHERE h.last_outcome IS NOT NULL
UNION
SELECT a.task_id, a.epoch, 'pending', a.outcome
FROM json_each(?1) AS e
CROSS JOIN punctual_attempts AS a ON a.task_id = unhex(e.value ->> 0) AND a.epoch = e.value ->> 1
-- A task that waited for its next attempt can still be cancelled; any other end came with this very attempt.
WHERE a.outcome <> 'cancelled' AND NOT EXISTS (
    SELECT 1 FROM punctual_task_history AS h WHERE h.id = a.task_id AND h.epoch = a.epoch AND h.status <> 'cancelled')
