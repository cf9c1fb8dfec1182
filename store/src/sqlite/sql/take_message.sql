-- Takes one message for sending, due or failed, if it was not sent and nobody is sending it: nobody else takes it before ?3.
UPDATE punctual_outbox
SET status = 'pending', attempt = CASE status WHEN 'failed' THEN 1 ELSE attempt + 1 END, epoch = epoch + 1,
    next_attempt_at = ?3, lease_expires_at = ?3, completed_at = NULL
WHERE id = ?1 AND status <> 'sent' AND (lease_expires_at IS NULL OR lease_expires_at <= ?2)
RETURNING
    id, dedupe_key, transport, recipient, body, status, attempt, epoch, next_attempt_at, provider_id, error, created_at,
    completed_at
