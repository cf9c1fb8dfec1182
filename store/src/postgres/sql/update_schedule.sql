-- Writes an edited schedule if it still has the version the edit began with; what fires wrote stays.
UPDATE punctual_schedules
SET name = $4, topic = $5, owner_id = $6, definition = $7, enabled = $8, pause_note = $9, paused_until = $10,
    next_fire_at = $11, updated_at = coalesce($1::timestamptz, statement_timestamp()), version = version + 1
WHERE id = $2 AND version = $3
RETURNING
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    fires_made, created_at, updated_at, version
