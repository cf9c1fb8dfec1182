-- Removes the hand-overs of these tasks that do not count any more.
DELETE FROM punctual_hand_overs AS o
WHERE o.task_id = ANY ($1) AND NOT EXISTS (
    SELECT FROM punctual_tasks AS t
    WHERE t.id = o.task_id AND t.epoch = o.epoch AND t.status <> 'pending' AND t.lease_expires_at IS NULL)
