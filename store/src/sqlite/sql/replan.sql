-- Writes next instants that were computed anew, where nobody edited or fired the schedule in between.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
UPDATE punctual_schedules AS s
SET next_fire_at = g.row ->> 3, tz_version = ?2
FROM given AS g
WHERE s.id = unhex(g.row ->> 0) AND s.version = g.row ->> 1 AND s.next_fire_at IS g.row ->> 2
