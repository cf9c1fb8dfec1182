-- Makes the present attempts of handed-over tasks the first ones of their jobs.
UPDATE punctual_hand_overs AS o
SET first_attempt = t.attempt
FROM unnest($1::uuid[], $2::bigint[]) AS g (id, epoch)
JOIN punctual_tasks AS t ON t.id = g.id AND t.epoch = g.epoch AND t.status <> 'pending' AND t.lease_expires_at IS NULL
WHERE o.task_id = t.id AND o.epoch = t.epoch
