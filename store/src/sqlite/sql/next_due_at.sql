-- The earliest instant after another at which a pending task is due.
SELECT min(run_at) FROM punctual_tasks INDEXED BY punctual_tasks_run_at WHERE status = 'pending' AND run_at > ?1
