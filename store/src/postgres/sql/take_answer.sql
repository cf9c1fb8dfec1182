-- Reserves the place of an answer; waits while somebody else is about to write it. No row: it is taken.
INSERT INTO punctual_answers AS a (owner, key, fingerprint, status, body, created_at)
VALUES ($2, $3, $4, 0, '', coalesce($1::timestamptz, statement_timestamp()))
ON CONFLICT (owner, key) DO UPDATE
SET fingerprint = excluded.fingerprint, status = 0, body = '', created_at = excluded.created_at
WHERE a.created_at <= excluded.created_at - interval '24 hours'
RETURNING true
