-- Pauses schedules that cannot be understood any more, with a note.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
UPDATE punctual_schedules AS s
SET enabled = false, pause_note = g.row ->> 1, paused_until = NULL, next_fire_at = NULL, updated_at = ?2,
    version = version + 1
FROM given AS g
WHERE s.id = unhex(g.row ->> 0)
