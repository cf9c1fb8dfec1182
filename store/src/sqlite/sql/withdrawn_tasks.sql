-- Which of these live tasks have begun, with the fire that a job of theirs would be called after; none where no queue serves any
-- topic.
SELECT id, topic, CASE WHEN retry_of IS NULL AND rescheduled_from IS NULL THEN schedule_id END, scheduled_at
FROM punctual_tasks
WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND epoch > 0
    AND EXISTS (SELECT 1 FROM punctual_topics WHERE definition ->> '$.route.type' = 'bullmq')
