-- Which of these fires are there already.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
SELECT f.schedule_id, f.scheduled_at
FROM given AS g
CROSS JOIN punctual_fires AS f
    ON f.schedule_id = unhex(g.row ->> 0) AND f.scheduled_at = g.row ->> 1 AND f.kind = ?2
