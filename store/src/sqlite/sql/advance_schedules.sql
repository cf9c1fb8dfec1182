-- Moves decided schedules on: their next instant, the watermark that never goes back, and what their fires made.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
UPDATE punctual_schedules AS s
SET next_fire_at = g.row ->> 1,
    fired_through = max(coalesce(s.fired_through, g.row ->> 2), g.row ->> 2),
    fires_made = s.fires_made + (g.row ->> 3),
    last_fired_at = CASE WHEN g.row ->> 3 > 0 THEN ?2 ELSE s.last_fired_at END,
    tz_version = g.row ->> 4
FROM given AS g
WHERE s.id = unhex(g.row ->> 0)
