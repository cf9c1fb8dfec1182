-- Moves decided schedules on: their next instant, the watermark that never goes back, and what their fires made.
UPDATE punctual_schedules AS s
SET next_fire_at = d.value ->> 1,
    fired_through = max(coalesce(s.fired_through, d.value ->> 2), d.value ->> 2),
    fires_made = s.fires_made + (d.value ->> 3),
    last_fired_at = CASE WHEN d.value ->> 3 > 0 THEN ?2 ELSE s.last_fired_at END
FROM json_each(?1) AS d
WHERE s.id = unhex(d.value ->> 0)
