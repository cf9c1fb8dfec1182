-- Writes messages that are due at once; that their keys are free was looked up in the same transaction.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_outbox (id, dedupe_key, transport, recipient, body, next_attempt_at, created_at)
SELECT unhex(row ->> 0), row ->> 1, row ->> 2, row ->> 3, row ->> 4, ?2, ?2 FROM given
