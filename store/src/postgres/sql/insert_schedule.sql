-- Writes a schedule; answers it as it is stored.
INSERT INTO punctual_schedules (
    id, name, topic, owner_id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at,
    next_fire_at, fired_through, fires_made, created_at, updated_at, version, tz_version
)
VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17)
RETURNING
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
