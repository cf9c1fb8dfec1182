-- Writes fires; each has its place once, whoever else believes that it leads.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_fires (
    id, schedule_id, kind, scheduled_at, fired_at, reason, until_at, count, tz_version, task_id
)
SELECT
    unhex(row ->> 0), unhex(row ->> 1), ?2, row ->> 2, ?3, row ->> 3, row ->> 4, row ->> 5, row ->> 6,
    unhex(row ->> 7)
FROM given
WHERE true
ON CONFLICT (schedule_id, scheduled_at, kind) DO NOTHING
