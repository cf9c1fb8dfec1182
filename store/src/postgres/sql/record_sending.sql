-- Records how sending ended, if this epoch is the newest and the message still waits.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), recorded AS (
    UPDATE punctual_outbox AS o
    SET status = $4, provider_id = coalesce($5, o.provider_id), error = $6,
        next_attempt_at = CASE WHEN $7::bigint IS NULL THEN o.next_attempt_at
                               ELSE least(
                                   clock.now + $7::bigint * interval '1 microsecond',
                                   timestamptz '9999-12-31 23:59:59.999999+00') END,
        lease_expires_at = NULL,
        completed_at = CASE WHEN $4 = 'pending' THEN NULL ELSE clock.now END
    FROM clock
    WHERE o.id = $2 AND o.epoch = $3 AND o.status = 'pending'
    RETURNING o.dedupe_key, o.provider_id
), named AS (
    UPDATE punctual_outbox_keys AS k SET provider_id = r.provider_id
    FROM recorded AS r WHERE k.dedupe_key = r.dedupe_key AND r.provider_id IS NOT NULL
)
SELECT count(*) FROM recorded
