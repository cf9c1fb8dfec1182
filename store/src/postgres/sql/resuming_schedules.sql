-- Schedules whose pause has ended, the longest first, locked until the transaction ends; those another node decides are passed over.
SELECT
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules
WHERE paused_until <= $1 AND paused_until IS NOT NULL AND NOT enabled
ORDER BY paused_until, id
LIMIT $2
FOR UPDATE SKIP LOCKED
