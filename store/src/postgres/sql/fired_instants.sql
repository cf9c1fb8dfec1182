-- Which of these instants have a fire of any kind that made a task.
SELECT DISTINCT f.scheduled_at
FROM unnest($2::timestamptz[]) AS g (scheduled_at)
JOIN punctual_fires AS f ON f.schedule_id = $1 AND f.scheduled_at = g.scheduled_at AND f.reason IS NULL
