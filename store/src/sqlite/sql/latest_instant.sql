-- The latest instant at which something is known to have happened; none in a file that nobody has used.
SELECT max(at) FROM (
    SELECT max(completed_at) AS at FROM punctual_task_history
    UNION ALL SELECT max(started_at) FROM punctual_attempts
    UNION ALL SELECT max(fired_at) FROM punctual_fires
    UNION ALL SELECT max(seen_at) FROM punctual_nodes)
