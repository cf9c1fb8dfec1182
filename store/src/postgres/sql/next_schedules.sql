-- Enabled schedules in the order in which they fire next, without their payloads, in the columns of schedules.
SELECT
    id,
    -- Read as json, not as jsonb: payloads may hold numbers that jsonb cannot.
    (SELECT json_object_agg(key, CASE key WHEN 'payload' THEN '{}'::json ELSE value END)
        FROM json_each(definition::json))::text AS definition,
    client_request_id, enabled, pause_note,
    paused_until, last_fired_at, next_fire_at, fired_through, tz_version, fires_made, created_at, updated_at, version
FROM punctual_schedules
WHERE next_fire_at IS NOT NULL AND enabled
ORDER BY next_fire_at, id
LIMIT $1
