-- Pauses a schedule that cannot be read, with a note. Answers its version, what fires wrote, and what its history says that it was.
UPDATE punctual_schedules
SET enabled = false, next_fire_at = NULL, paused_until = NULL, pause_note = $2, updated_at = $3, version = version + 1
WHERE id = $1
RETURNING
    version, last_fired_at, fired_through, fires_made,
    (SELECT schedule FROM punctual_schedule_history WHERE schedule_id = $1 ORDER BY version DESC LIMIT 1)
