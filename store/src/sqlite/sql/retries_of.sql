-- The tasks that were made to retry another, newest first.
SELECT id, status, created_at FROM punctual_tasks WHERE retry_of = ?1
UNION ALL
SELECT id, status, created_at FROM punctual_task_history WHERE retry_of = ?1
ORDER BY id DESC
LIMIT ?2
