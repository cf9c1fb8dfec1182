-- Takes or renews a leadership that is free, ours or expired; its epoch grows when it changes hands. Answers who leads, and for
-- how many microseconds; nobody if another node has taken a free one just now.
WITH clock AS (
    SELECT coalesce($1::timestamptz, statement_timestamp()) AS now
), taken AS (
    INSERT INTO punctual_leaderships AS l (name, owner, epoch, expires_at)
    SELECT $2, $3, 1, least(clock.now + $4::bigint * interval '1 microsecond', timestamptz '9999-12-31 23:59:59.999999+00')
    FROM clock
    ON CONFLICT (name) DO UPDATE
    SET owner = excluded.owner, expires_at = excluded.expires_at,
        epoch = l.epoch + (l.owner <> excluded.owner)::integer
    WHERE l.owner = excluded.owner OR l.expires_at <= (SELECT now FROM clock)
    RETURNING owner, epoch, expires_at
), leads AS (
    SELECT owner, epoch, expires_at FROM taken
    UNION ALL
    SELECT owner, epoch, expires_at FROM punctual_leaderships
    WHERE name = $2 AND expires_at > (SELECT now FROM clock) AND NOT EXISTS (SELECT FROM taken)
)
SELECT owner, epoch, expires_at, (extract(epoch FROM greatest(expires_at - now, interval '0')) * 1000000)::bigint
FROM leads, clock
