-- Takes the dedupe keys of messages for good.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_outbox_keys (dedupe_key, message_id) SELECT row ->> 1, unhex(row ->> 0) FROM given
