-- Removes fires from before ?1, unless their task has not ended.
DELETE FROM punctual_fires
WHERE rowid IN (
    SELECT f.rowid
    FROM punctual_fires AS f INDEXED BY punctual_fires_fired_at
    WHERE f.fired_at < ?1 AND NOT EXISTS (SELECT 1 FROM punctual_tasks AS t WHERE t.id = f.task_id)
    ORDER BY f.fired_at
    LIMIT ?2)
