-- When the next lease runs out, and the earliest instant of an enabled schedule.
SELECT
    (SELECT min(lease_expires_at) FROM punctual_tasks INDEXED BY punctual_tasks_lease WHERE lease_expires_at IS NOT NULL),
    (SELECT next_fire_at FROM punctual_schedules INDEXED BY punctual_schedules_next
     WHERE next_fire_at IS NOT NULL AND enabled ORDER BY next_fire_at LIMIT 1)
