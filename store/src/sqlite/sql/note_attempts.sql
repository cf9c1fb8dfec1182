-- Notes how running attempts end, each by its epoch, or the one that runs where no epoch is given. Answers their tasks.
INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
SELECT t.id, t.epoch, t.attempt, t.lease_owner, t.started_at, ?2, e.value ->> 2, e.value ->> 3
FROM json_each(?1) AS e
CROSS JOIN punctual_tasks AS t ON t.id = unhex(e.value ->> 0)
WHERE t.status = 'running' AND (e.value ->> 1 IS NULL OR t.epoch = e.value ->> 1)
RETURNING task_id, epoch
