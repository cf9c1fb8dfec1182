-- Makes a failed message due, as if it had never been tried.
UPDATE punctual_outbox
SET status = 'pending', attempt = 0, next_attempt_at = ?2, completed_at = NULL
WHERE id = ?1 AND status = 'failed'
