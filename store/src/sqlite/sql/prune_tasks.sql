-- Removes ended tasks.
DELETE FROM punctual_task_history WHERE id IN (SELECT unhex(value) FROM json_each(?1))
