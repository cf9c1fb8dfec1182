-- Writes an edited schedule if it still has the version that was edited; what fires write stays.
UPDATE punctual_schedules
SET name = ?3, topic = ?4, owner_id = ?5, definition = ?6, enabled = ?7, pause_note = ?8, paused_until = ?9,
    next_fire_at = ?10, updated_at = ?11, tz_version = ?12, version = version + 1
WHERE id = ?1 AND version = ?2
