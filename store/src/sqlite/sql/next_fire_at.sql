-- The earliest instant of a schedule that is enabled, or at which a pause ends.
SELECT min(at) FROM (
    SELECT min(next_fire_at) AS at FROM punctual_schedules INDEXED BY punctual_schedules_next
    WHERE next_fire_at IS NOT NULL AND enabled
    UNION ALL
    SELECT min(paused_until) AS at FROM punctual_schedules INDEXED BY punctual_schedules_paused
    WHERE paused_until IS NOT NULL AND NOT enabled
)
