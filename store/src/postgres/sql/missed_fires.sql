-- Missed fires in the order they were noted, after one.
SELECT schedule_id, scheduled_at, name, topic, noted_at
FROM punctual_missed_fires
WHERE (noted_at, schedule_id) > ($1, $2)
ORDER BY noted_at, schedule_id
LIMIT $3
