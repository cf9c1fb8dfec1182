-- The answer kept under an Idempotency-Key, if it is younger than a day.
SELECT fingerprint, status, body FROM punctual_answers
WHERE owner = $2 AND key = $3 AND created_at > coalesce($1::timestamptz, statement_timestamp()) - interval '24 hours'
