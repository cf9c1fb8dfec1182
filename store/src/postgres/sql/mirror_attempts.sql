-- Moves handed-over tasks on to the attempts that their queues began, by their epochs, and notes those before as failed.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), held AS MATERIALIZED (
    SELECT t.id, t.epoch, t.attempt AS number, t.lease_owner, t.started_at, g.attempt, g.reason
    FROM unnest($2::uuid[], $3::bigint[], $4::integer[], $5::text[]) AS g (id, epoch, attempt, reason)
    JOIN punctual_tasks AS t ON t.id = g.id AND t.epoch = g.epoch
    WHERE t.status <> 'pending' AND t.lease_expires_at IS NULL AND t.attempt < g.attempt
    ORDER BY t.id
    FOR UPDATE OF t
), moved AS (
    UPDATE punctual_tasks AS t
    SET epoch = t.epoch + 1, attempt = h.attempt, started_at = clock.now, error = h.reason
    FROM held AS h, clock
    WHERE t.id = h.id AND t.epoch = h.epoch
    RETURNING t.id, t.epoch
), noted AS (
    INSERT INTO punctual_attempts (task_id, epoch, number, node_id, started_at, ended_at, outcome, error)
    SELECT id, epoch, number, lease_owner, started_at, clock.now, 'failed', reason
    FROM held, clock
)
UPDATE punctual_hand_overs AS o SET epoch = m.epoch FROM moved AS m WHERE o.task_id = m.id
