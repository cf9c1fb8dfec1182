-- Notes instants that passed without a fire and that nobody is catching up; each once, whichever node sees it first.
WITH late AS (
    SELECT s.id, s.next_fire_at, s.name, s.topic, clock.now
    FROM punctual_schedules AS s,
        (SELECT coalesce($1::timestamptz, statement_timestamp()) AS now, $2::bigint * interval '1 microsecond' AS late)
            AS clock
    WHERE s.next_fire_at < clock.now - clock.late AND s.enabled
        AND (s.last_fired_at IS NULL OR s.last_fired_at < clock.now - clock.late)
        AND NOT EXISTS (
            SELECT FROM punctual_missed_fires AS m WHERE m.schedule_id = s.id AND m.scheduled_at = s.next_fire_at)
    ORDER BY s.next_fire_at, s.id
    LIMIT $3
)
INSERT INTO punctual_missed_fires (schedule_id, scheduled_at, name, topic, noted_at)
SELECT id, next_fire_at, name, topic, now FROM late
ON CONFLICT DO NOTHING
RETURNING schedule_id, scheduled_at, name, topic, noted_at
