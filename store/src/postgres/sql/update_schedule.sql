-- Writes an edited schedule that is locked; what fires wrote stays.
UPDATE punctual_schedules
SET name = $3, topic = $4, owner_id = $5, definition = $6, enabled = $7, pause_note = $8, paused_until = $9,
    next_fire_at = $10, tz_version = $11, updated_at = $1, version = version + 1
WHERE id = $2
RETURNING
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
