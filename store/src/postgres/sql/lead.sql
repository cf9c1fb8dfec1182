-- Takes or renews a leadership that is free, ours or expired; its epoch grows when it changes hands.
INSERT INTO punctual_leaderships AS l (name, owner, epoch, expires_at)
SELECT $2, $3, 1, least(clock.now + $4::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
FROM (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, expires_at = excluded.expires_at,
    epoch = l.epoch + (l.owner <> excluded.owner)::integer
WHERE l.owner = excluded.owner OR l.expires_at <= coalesce($1::timestamptz, statement_timestamp())
RETURNING owner, epoch, expires_at
