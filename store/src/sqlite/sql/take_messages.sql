-- Takes due messages of a transport for sending: nobody else takes them before ?2.
UPDATE punctual_outbox
SET attempt = attempt + 1, epoch = epoch + 1, next_attempt_at = ?2, lease_expires_at = ?2
WHERE rowid IN (
    SELECT rowid FROM punctual_outbox INDEXED BY punctual_outbox_due
    WHERE status = 'pending' AND transport = ?4 AND next_attempt_at <= ?1
    ORDER BY next_attempt_at, id
    LIMIT ?3)
RETURNING
    id, dedupe_key, transport, recipient, body, status, attempt, epoch, next_attempt_at, provider_id, error, created_at,
    completed_at
