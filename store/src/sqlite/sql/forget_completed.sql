-- Takes back what complete_tasks.sql copied where it could not copy all: no other ended task is live at once.
DELETE FROM punctual_task_history
WHERE id IN (SELECT substr(?2, 1 + 16 * line.key, 16) FROM json_each(?1) AS line)
    AND EXISTS (SELECT 1 FROM punctual_tasks AS t WHERE t.id = punctual_task_history.id)
