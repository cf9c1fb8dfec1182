-- Removes what complete_tasks.sql copied just before: all ?4 of them, or nothing.
DELETE FROM punctual_tasks
WHERE rowid IN (SELECT value FROM json_each(?1) WHERE changes() = ?4) AND epoch = 1 AND status = 'running'
