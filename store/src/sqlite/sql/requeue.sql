-- Makes running tasks pending again, each by its epoch: after a wait, or at the instant they had.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
UPDATE punctual_tasks AS t
SET status = 'pending',
    lost = t.lost - (g.row ->> 2 <> 'lost'),
    snoozes = t.snoozes + (g.row ->> 2 = 'snoozed'),
    attempt = t.attempt - (g.row ->> 2 = 'handed_back'),
    run_at = coalesce(g.row ->> 4, t.run_at),
    error = coalesce(g.row ->> 3, t.error),
    lease_owner = NULL,
    lease_expires_at = NULL,
    lease_seconds = NULL
FROM given AS g
WHERE t.id = unhex(g.row ->> 0) AND t.epoch = g.row ->> 1 AND t.status = 'running'
