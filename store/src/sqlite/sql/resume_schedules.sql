-- Enables schedules whose pause has ended.
UPDATE punctual_schedules
SET enabled = true, pause_note = NULL, paused_until = NULL, updated_at = ?2, version = version + 1
WHERE id IN (SELECT unhex(value) FROM json_each(?1))
