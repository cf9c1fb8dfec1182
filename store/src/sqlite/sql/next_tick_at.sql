-- The earliest instant of a schedule that is enabled, and the earliest at which a paused one resumes.
SELECT
    (SELECT next_fire_at FROM punctual_schedules INDEXED BY punctual_schedules_next
     WHERE next_fire_at IS NOT NULL AND enabled ORDER BY next_fire_at LIMIT 1),
    (SELECT paused_until FROM punctual_schedules INDEXED BY punctual_schedules_paused
     WHERE paused_until IS NOT NULL AND NOT enabled ORDER BY paused_until LIMIT 1)
