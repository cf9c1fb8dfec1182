-- Makes the present attempts of handed-over tasks the first ones of their jobs.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
UPDATE punctual_hand_overs AS o
SET first_attempt = t.attempt
FROM given AS g
CROSS JOIN punctual_tasks AS t ON t.id = unhex(g.row ->> 0)
WHERE t.epoch = g.row ->> 1 AND t.status = 'running' AND t.lease_expires_at IS NULL
    AND o.task_id = t.id AND o.epoch = t.epoch
