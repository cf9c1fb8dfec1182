-- Takes due messages for sending; nobody else takes them until the lease has passed.
UPDATE punctual_outbox AS o
SET attempt = o.attempt + 1, epoch = o.epoch + 1,
    next_attempt_at = least(clock.now + $2::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
WHERE o.id = ANY (ARRAY(
    SELECT id FROM punctual_outbox
    WHERE status = 'pending' AND next_attempt_at <= coalesce($1::timestamptz, statement_timestamp())
    ORDER BY next_attempt_at, id
    LIMIT $3
    FOR UPDATE SKIP LOCKED))
RETURNING
    o.id, o.dedupe_key, o.transport, o.recipient, o.body, o.status, o.attempt, o.epoch, o.next_attempt_at,
    o.provider_id, o.error, o.created_at, o.completed_at
