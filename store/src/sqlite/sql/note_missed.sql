-- Notes instants that passed without a fire and that nobody is catching up; each once.
INSERT INTO punctual_missed_fires (schedule_id, scheduled_at, name, topic, noted_at)
SELECT s.id, s.next_fire_at, s.name, s.topic, ?1
FROM punctual_schedules AS s INDEXED BY punctual_schedules_next
WHERE s.next_fire_at < ?2 AND s.next_fire_at IS NOT NULL AND s.enabled
    AND (s.last_fired_at IS NULL OR s.last_fired_at < ?2)
    AND NOT EXISTS (
        SELECT 1 FROM punctual_missed_fires AS m WHERE m.schedule_id = s.id AND m.scheduled_at = s.next_fire_at)
ORDER BY s.next_fire_at, s.id
LIMIT ?3
ON CONFLICT DO NOTHING
RETURNING schedule_id, scheduled_at, name, topic, noted_at
