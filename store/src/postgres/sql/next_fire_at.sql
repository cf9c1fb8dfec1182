-- The earliest instant of a schedule that is enabled, or at which a pause ends.
SELECT least(
    (SELECT min(next_fire_at) FROM punctual_schedules WHERE next_fire_at IS NOT NULL AND enabled),
    (SELECT min(paused_until) FROM punctual_schedules WHERE paused_until IS NOT NULL AND NOT enabled)
)
