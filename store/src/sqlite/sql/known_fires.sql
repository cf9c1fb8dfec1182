-- Which of these fires are there already.
SELECT f.schedule_id, f.scheduled_at
FROM json_each(?1) AS n
CROSS JOIN punctual_fires AS f
    ON f.schedule_id = unhex(n.value ->> 0) AND f.scheduled_at = n.value ->> 1 AND f.kind = ?2
