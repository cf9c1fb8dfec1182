-- The first messages of these dedupe keys, also of those that retention removed.
SELECT dedupe_key, message_id, provider_id
FROM punctual_outbox_keys
WHERE dedupe_key IN (SELECT value FROM json_each(?1))
