-- Schedules whose pause has ended, the longest first.
SELECT
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules INDEXED BY punctual_schedules_paused
WHERE paused_until <= ?1 AND paused_until IS NOT NULL AND NOT enabled
ORDER BY paused_until, id
LIMIT ?2
