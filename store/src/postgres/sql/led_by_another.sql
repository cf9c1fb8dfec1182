-- A leadership that another node holds.
SELECT owner, epoch, expires_at
FROM punctual_leaderships
WHERE name = $2 AND owner <> $3 AND expires_at > coalesce($1::timestamptz, statement_timestamp())
