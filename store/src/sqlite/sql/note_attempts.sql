-- Notes how running attempts end, each by its epoch, or the one that runs where no epoch is given. Answers their tasks.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
SELECT t.id, t.epoch, t.attempt, t.lease_owner, t.started_at, ?2, g.row ->> 2, g.row ->> 3
FROM given AS g
CROSS JOIN punctual_tasks AS t ON t.id = unhex(g.row ->> 0)
WHERE t.status = 'running' AND (g.row ->> 1 IS NULL OR t.epoch = g.row ->> 1)
RETURNING task_id, epoch
