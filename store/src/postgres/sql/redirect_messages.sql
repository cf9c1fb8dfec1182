-- Has messages of one transport sent by another, but for those that were sent or are being sent.
UPDATE punctual_outbox
SET transport = $3
WHERE transport = $2 AND status IN ('pending', 'failed')
    AND (lease_expires_at IS NULL OR lease_expires_at <= coalesce($1::timestamptz, statement_timestamp()))
