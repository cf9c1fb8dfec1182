-- How many tasks are due and wait to be claimed, counted no further than ?2.
SELECT count(*)
FROM (
    SELECT 1 FROM punctual_tasks INDEXED BY punctual_tasks_run_at
    WHERE status = 'pending' AND run_at <= ?1
    LIMIT ?2)
