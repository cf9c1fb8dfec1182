-- Notes what queues did with the attempts of handed-over tasks, by their epochs. Where there is a reason, the present attempt
-- failed: it is noted, and the task rests by the next epoch. Where there is none, the next one began, if the task rests.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT t.id, t.epoch, t.attempt, t.lease_owner, t.started_at, g.reason
    FROM unnest($2::uuid[], $3::bigint[], $4::text[]) AS g (id, epoch, reason)
    JOIN punctual_tasks AS t ON t.id = g.id AND t.epoch = g.epoch
    LEFT JOIN punctual_attempts AS r
        ON r.task_id = t.id AND r.epoch = t.epoch - 1 AND r.number = t.attempt AND r.outcome = 'failed'
    WHERE t.status <> 'pending' AND t.lease_expires_at IS NULL AND (g.reason IS NULL) = (r.task_id IS NOT NULL)
    ORDER BY t.id
    FOR UPDATE OF t
), moved AS (
    UPDATE punctual_tasks AS t
    SET epoch = t.epoch + (h.reason IS NOT NULL)::integer,
        attempt = t.attempt + (h.reason IS NULL)::integer,
        started_at = CASE WHEN h.reason IS NULL THEN clock.now ELSE t.started_at END,
        error = coalesce(h.reason, t.error)
    FROM held AS h, clock
    WHERE t.id = h.id AND t.epoch = h.epoch
    RETURNING t.id, t.epoch
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
    SELECT id, epoch, attempt, lease_owner, started_at, clock.now, 'failed', reason
    FROM held, clock WHERE reason IS NOT NULL
)
UPDATE punctual_hand_overs AS o SET epoch = m.epoch FROM moved AS m WHERE o.task_id = m.id
