-- Notes that fires of a schedule made tasks; its next instant and watermark stay.
UPDATE punctual_schedules SET fires_made = fires_made + ?2, last_fired_at = ?3 WHERE id = ?1
