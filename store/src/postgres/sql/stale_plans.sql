-- Schedules whose next instant lies ahead and was computed with another release of zone data, by id.
SELECT
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules
WHERE tz_version <> $2 AND next_fire_at > coalesce($1::timestamptz, statement_timestamp())
    AND ($3::uuid IS NULL OR id > $3)
ORDER BY id
LIMIT $4
