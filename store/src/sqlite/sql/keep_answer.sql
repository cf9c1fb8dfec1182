-- Keeps an answer under its Idempotency-Key, in place of one that was too old.
INSERT OR REPLACE INTO punctual_answers (owner, key, fingerprint, status, body, created_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
