-- Tasks that failed since ?1, those that failed last first.
SELECT id, topic, substr(coalesce(error, ''), 1, 300), completed_at, schedule_id
FROM punctual_task_history INDEXED BY punctual_task_history_failed
WHERE status = 'failed' AND completed_at >= ?1
ORDER BY completed_at DESC, id DESC
LIMIT ?2
