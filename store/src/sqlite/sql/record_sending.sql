-- Records how sending ended, if the epoch is the newest and the message still pending. Answers its key.
UPDATE punctual_outbox
SET status = ?3, provider_id = coalesce(?4, provider_id), error = ?5,
    next_attempt_at = coalesce(?6, next_attempt_at), lease_expires_at = NULL, completed_at = ?7
WHERE id = ?1 AND epoch = ?2 AND status = 'pending'
RETURNING dedupe_key
