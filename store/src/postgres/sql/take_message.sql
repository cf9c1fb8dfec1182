-- Takes one message for sending, due or failed, if it was not sent and nobody is sending it; nobody else takes it until the
-- lease has passed.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), until AS (
    SELECT now, least(now + $3::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00') AS at
    FROM clock
)
UPDATE punctual_outbox AS o
SET status = 'pending', attempt = CASE o.status WHEN 'failed' THEN 1 ELSE o.attempt + 1 END, epoch = o.epoch + 1,
    next_attempt_at = until.at, lease_expires_at = until.at, completed_at = NULL
FROM until
WHERE o.id = $2 AND o.status <> 'sent' AND (o.lease_expires_at IS NULL OR o.lease_expires_at <= until.now)
RETURNING
    o.id, o.dedupe_key, o.transport, o.recipient, o.body, o.status, o.attempt, o.epoch, o.next_attempt_at,
    o.provider_id, o.error, o.created_at, o.completed_at
