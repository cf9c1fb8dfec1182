-- The store's instant, when the next lease runs out, and the earliest instant of an enabled schedule.
SELECT
    coalesce($1::timestamptz, statement_timestamp()),
    (SELECT min(lease_expires_at) FROM punctual_tasks WHERE status = 'running' AND lease_expires_at IS NOT NULL),
    (SELECT min(next_fire_at) FROM punctual_schedules WHERE next_fire_at IS NOT NULL AND enabled)
