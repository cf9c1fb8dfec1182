-- Schedules, in the columns every reader of schedules expects.
SELECT
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules
