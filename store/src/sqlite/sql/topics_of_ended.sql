-- How many of these ended tasks there are of each topic and origin.
SELECT topic, schedule_id IS NOT NULL, count(*)
FROM punctual_task_history
WHERE id IN (SELECT unhex(value) FROM json_each(?1))
GROUP BY 1, 2
