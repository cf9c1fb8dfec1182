-- Writes messages whose dedupe key was never used. Answers them.
WITH input AS (
    SELECT * FROM unnest($2::uuid[], $3::text[], $4::text[], $5::text[], $6::text[])
        AS m (id, dedupe_key, transport, recipient, body)
), fresh AS (
    INSERT INTO punctual_outbox_keys (dedupe_key, message_id)
    SELECT dedupe_key, id FROM input ORDER BY dedupe_key, id
    ON CONFLICT (dedupe_key) DO NOTHING
    RETURNING message_id
)
INSERT INTO punctual_outbox (id, dedupe_key, transport, recipient, body, next_attempt_at, created_at)
SELECT i.id, i.dedupe_key, i.transport, i.recipient, i.body, clock.now, clock.now
FROM input AS i JOIN fresh AS f ON f.message_id = i.id,
    (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
RETURNING id
