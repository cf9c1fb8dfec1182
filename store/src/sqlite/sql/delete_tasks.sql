-- Removes live tasks that were copied to the history.
DELETE FROM punctual_tasks WHERE id IN (SELECT unhex(value) FROM json_each(?1))
