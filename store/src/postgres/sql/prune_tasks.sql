-- Removes ended tasks of the given topics (or of all but them) that ended before an instant, with their attempts.
WITH old AS (
    SELECT id FROM punctual_task_history
    WHERE completed_at < $1 AND (topic = ANY ($2)) = $3
    ORDER BY completed_at
    LIMIT $4
), attempts AS (
    DELETE FROM punctual_attempts WHERE task_id = ANY (ARRAY(SELECT id FROM old))
)
DELETE FROM punctual_task_history WHERE id = ANY (ARRAY(SELECT id FROM old))
