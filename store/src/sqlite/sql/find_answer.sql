-- The answer kept under an Idempotency-Key, if it is younger than ?3.
SELECT fingerprint, status, body FROM punctual_answers WHERE owner = ?1 AND key = ?2 AND created_at > ?3
