-- The fire of an instant: the one that made this task, if there is one.
SELECT id FROM punctual_fires
WHERE schedule_id = $1 AND scheduled_at = $2 AND task_id IS NOT NULL
ORDER BY task_id = $3 DESC, id
LIMIT 1
