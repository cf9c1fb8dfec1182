-- Removes the attempts of ended tasks that are removed.
DELETE FROM punctual_attempts WHERE task_id IN (SELECT unhex(value) FROM json_each(?1))
