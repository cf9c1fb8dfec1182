-- Writes messages that are due at once; that their keys are free was looked up in the same transaction.
INSERT INTO punctual_outbox (id, dedupe_key, transport, recipient, body, next_attempt_at, created_at)
SELECT unhex(value ->> 0), value ->> 1, value ->> 2, value ->> 3, value ->> 4, ?2, ?2 FROM json_each(?1)
