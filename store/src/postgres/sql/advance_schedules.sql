-- Moves decided schedules to their next instant, and notes what was fired.
UPDATE punctual_schedules AS s
SET next_fire_at = d.next_fire_at, fired_through = d.fired_through, fires_made = s.fires_made + d.fired,
    last_fired_at = CASE WHEN d.fired > 0 THEN $1 ELSE s.last_fired_at END, tz_version = d.tz_version
FROM unnest($2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::bigint[], $6::text[])
    AS d (id, next_fire_at, fired_through, fired, tz_version)
WHERE s.id = d.id
