-- Who leads or led last, until when, and for how many microseconds more.
SELECT owner, epoch, expires_at, (extract(epoch FROM greatest(expires_at - now, interval '0')) * 1000000)::bigint
FROM punctual_leaderships, (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now) AS clock
WHERE name = $2
