-- Enables schedules whose pause has ended; answers them as they are then.
UPDATE punctual_schedules
SET enabled = true, pause_note = NULL, paused_until = NULL, updated_at = $1, version = version + 1
WHERE id = ANY ($2)
RETURNING
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
