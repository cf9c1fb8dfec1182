-- Has messages of one transport sent by another, but for those that were sent or are being sent.
UPDATE punctual_outbox
SET transport = ?2
WHERE transport = ?1 AND status IN ('pending', 'failed') AND (lease_expires_at IS NULL OR lease_expires_at <= ?3)
