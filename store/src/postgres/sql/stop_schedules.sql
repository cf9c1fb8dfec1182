-- Pauses schedules that cannot be understood any more, with a note; answers them as they are then.
UPDATE punctual_schedules AS s
SET enabled = false, pause_note = d.note, paused_until = NULL, next_fire_at = NULL, updated_at = $1, version = version + 1
FROM unnest($2::uuid[], $3::text[]) AS d (id, note)
WHERE s.id = d.id
RETURNING
    s.id, definition, client_request_id, enabled, pause_note, paused_until, last_fired_at, next_fire_at, fired_through,
    tz_version, fires_made, created_at, updated_at, version
