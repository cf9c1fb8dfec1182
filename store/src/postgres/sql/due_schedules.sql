-- Enabled schedules that are due, the longest due first, locked until the transaction ends; those another node decides are passed over.
SELECT
    id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules
WHERE next_fire_at <= $1 AND next_fire_at >= $2 AND enabled
ORDER BY next_fire_at, id
LIMIT $3
FOR UPDATE SKIP LOCKED
