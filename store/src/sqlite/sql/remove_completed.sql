-- Removes what complete_tasks.sql copied, in the same transaction.
DELETE FROM punctual_tasks
WHERE id IN (SELECT substr(?1, 1 + 16 * value, 16) FROM json_each(?2)) AND epoch = 1 AND status = 'running'
