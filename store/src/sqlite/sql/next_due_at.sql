-- The earliest instant of a pending task.
SELECT min(run_at) FROM punctual_tasks INDEXED BY punctual_tasks_run_at WHERE status = 'pending'
