-- The earliest instant of a pending task.
SELECT min(run_at) FROM punctual_tasks WHERE status = 'pending'
