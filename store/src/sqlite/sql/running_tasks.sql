-- Which of these tasks run.
SELECT id FROM punctual_tasks WHERE id IN (SELECT unhex(value) FROM json_each(?1)) AND status = 'running'
