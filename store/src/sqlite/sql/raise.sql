-- Notes that somebody is told of a cause at ?2, unless that was done within ?3 microseconds. An instant further ahead than that
-- was noted by a clock that was wrong.
INSERT INTO punctual_alerts AS a (cause, raised_at)
VALUES (?1, ?2)
ON CONFLICT (cause) DO UPDATE SET raised_at = excluded.raised_at
WHERE a.raised_at <= excluded.raised_at - ?3 OR a.raised_at > excluded.raised_at + ?3
