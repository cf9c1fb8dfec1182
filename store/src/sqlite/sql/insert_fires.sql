-- Writes fires; each has its place once, whoever else believes that it leads.
INSERT INTO punctual_fires (
    id, schedule_id, kind, scheduled_at, fired_at, reason, until_at, count, tz_version, task_id
)
SELECT
    unhex(value ->> 0), unhex(value ->> 1), ?2, value ->> 2, ?3, value ->> 3, value ->> 4, value ->> 5, value ->> 6,
    unhex(value ->> 7)
FROM json_each(?1)
WHERE true
ON CONFLICT (schedule_id, scheduled_at, kind) DO NOTHING
