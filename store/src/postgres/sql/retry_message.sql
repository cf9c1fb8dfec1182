-- Makes a failed message due, as if it had never been tried.
UPDATE punctual_outbox
SET status = 'pending', attempt = 0, next_attempt_at = coalesce($1, statement_timestamp()), completed_at = NULL
WHERE id = $2 AND status = 'failed'
