-- Adds to a schedule's history: what it is from now on, or null where it was deleted.
INSERT INTO punctual_schedule_history (schedule_id, version, changed_at, schedule) VALUES (?1, ?2, ?3, ?4)
