-- Notes that somebody is told of a cause, unless that was done within $3 microseconds. An instant further ahead than that was
-- noted by a clock that was wrong.
INSERT INTO punctual_alerts AS a (cause, raised_at)
VALUES ($2, coalesce($1::timestamptz, statement_timestamp()))
ON CONFLICT (cause) DO UPDATE SET raised_at = excluded.raised_at
WHERE a.raised_at <= excluded.raised_at - $3::bigint * interval '1 microsecond'
    OR a.raised_at > excluded.raised_at + $3::bigint * interval '1 microsecond'
