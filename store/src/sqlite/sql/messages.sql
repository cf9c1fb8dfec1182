-- Messages, in the columns every reader of messages expects.
SELECT
    id, dedupe_key, transport, recipient, body, status, attempt, epoch, next_attempt_at, provider_id, error, created_at,
    completed_at
FROM punctual_outbox
