-- Takes due messages of a transport for sending; nobody else takes them until the lease has passed.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), until AS (
    SELECT least(now + $2::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') AS at
    FROM clock
)
UPDATE punctual_outbox AS o
SET attempt = o.attempt + 1, epoch = o.epoch + 1, next_attempt_at = until.at, lease_expires_at = until.at
FROM until
WHERE o.id = ANY (ARRAY(
    SELECT id FROM punctual_outbox
    WHERE status = 'pending' AND transport = $4 AND next_attempt_at <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY next_attempt_at, id
    LIMIT $3
    FOR UPDATE SKIP LOCKED))
RETURNING
    o.id, o.dedupe_key, o.transport, o.recipient, o.body, o.status, o.attempt, o.epoch, o.next_attempt_at,
    o.provider_id, o.error, o.created_at, o.completed_at
