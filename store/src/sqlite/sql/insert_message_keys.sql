-- Takes the dedupe keys of messages for good.
INSERT INTO punctual_outbox_keys (dedupe_key, message_id) SELECT value ->> 1, unhex(value ->> 0) FROM json_each(?1)
