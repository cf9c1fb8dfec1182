-- Pending tasks that become due after ?1 and before ?2, in that order.
SELECT id, topic, timezone, run_at
FROM punctual_tasks INDEXED BY punctual_tasks_run_at
WHERE status = 'pending' AND run_at > ?1 AND run_at < ?2
ORDER BY run_at
LIMIT ?3
