-- The earliest instant of an enabled schedule, and the earliest at which a paused one resumes.
SELECT
    (SELECT min(next_fire_at) FROM punctual_schedules WHERE next_fire_at IS NOT NULL AND enabled),
    (SELECT min(paused_until) FROM punctual_schedules WHERE paused_until IS NOT NULL AND NOT enabled)
