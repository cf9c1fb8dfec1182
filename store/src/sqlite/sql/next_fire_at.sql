-- The earliest instant of a schedule that is enabled.
SELECT next_fire_at FROM (
    SELECT next_fire_at FROM punctual_schedules INDEXED BY punctual_schedules_next
    WHERE next_fire_at IS NOT NULL AND enabled ORDER BY next_fire_at LIMIT 1)
UNION ALL
SELECT NULL
LIMIT 1
