-- Makes running tasks pending again, each by its epoch: after a wait, or at the instant they had.
UPDATE punctual_tasks AS t
SET status = 'pending',
    lost = t.lost - (e.value ->> 2 <> 'lost'),
    snoozes = t.snoozes + (e.value ->> 2 = 'snoozed'),
    attempt = t.attempt - (e.value ->> 2 = 'handed_back'),
    run_at = coalesce(e.value ->> 4, t.run_at),
    error = coalesce(e.value ->> 3, t.error),
    lease_owner = NULL,
    lease_expires_at = NULL
FROM json_each(?1) AS e
WHERE t.id = unhex(e.value ->> 0) AND t.epoch = e.value ->> 1 AND t.status = 'running'
