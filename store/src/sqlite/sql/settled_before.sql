-- How attempts ended that were settled earlier: by the history where they ended the task, else by their own rows.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
SELECT h.id, h.epoch, h.status, h.last_outcome
FROM given AS g
CROSS JOIN punctual_task_history AS h ON h.id = unhex(g.row ->> 0) AND h.epoch = g.row ->> 1
WHERE h.last_outcome IS NOT NULL
UNION
SELECT a.task_id, a.epoch, 'pending', a.outcome
FROM given AS g
CROSS JOIN punctual_attempts AS a ON a.task_id = unhex(g.row ->> 0) AND a.epoch = g.row ->> 1
-- A task that waited for its next attempt can still be cancelled; any other end came with this very attempt.
WHERE a.outcome <> 'cancelled' AND NOT EXISTS (
    SELECT 1 FROM punctual_task_history AS h WHERE h.id = a.task_id AND h.epoch = a.epoch AND h.status <> 'cancelled')
