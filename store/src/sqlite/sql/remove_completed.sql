-- Removes what complete_tasks.sql copied, in the same transaction. It copied all of them, or nothing of it is kept.
DELETE FROM punctual_tasks
WHERE rowid IN (SELECT value FROM json_each(?1)) AND epoch = 1 AND status = 'running'
