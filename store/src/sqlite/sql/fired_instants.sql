-- Which of these instants have a fire of any kind that made a task.
SELECT DISTINCT f.scheduled_at
FROM json_each(?2) AS g
CROSS JOIN punctual_fires AS f ON f.schedule_id = ?1 AND f.scheduled_at = g.value AND f.reason IS NULL
