-- Enabled schedules in the order in which they fire next, without their payloads, in the columns of schedules.sql.
SELECT
    id, json_set(definition, '$.payload', json('{}')), client_request_id, enabled, pause_note, paused_until,
    last_fired_at, next_fire_at, fired_through, tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules INDEXED BY punctual_schedules_next
WHERE next_fire_at IS NOT NULL AND enabled
ORDER BY next_fire_at, id
LIMIT ?1
