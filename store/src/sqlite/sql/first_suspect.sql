-- A due task that has lost an attempt, if there is one.
SELECT rowid FROM punctual_tasks INDEXED BY punctual_tasks_suspect
WHERE status = 'pending' AND lost > 0 AND run_at <= ?1
LIMIT 1
