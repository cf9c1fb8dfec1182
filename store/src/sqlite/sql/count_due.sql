-- Due and unclaimed tasks, by topic and origin.
SELECT topic, schedule_id IS NOT NULL AS of_schedules, count(*)
FROM punctual_tasks INDEXED BY punctual_tasks_run_at
WHERE status = 'pending' AND run_at <= ?1
GROUP BY topic, of_schedules
ORDER BY topic, of_schedules
