-- Instants of tasks that ended from after ?1 up to ?2 and whose fire names other tasks only.
SELECT DISTINCT t.schedule_id, t.scheduled_at
FROM punctual_task_history AS t INDEXED BY punctual_task_history_fired
WHERE t.schedule_id IS NOT NULL AND t.completed_at > ?1 AND t.completed_at <= ?2
    AND t.retry_of IS NULL AND t.rescheduled_from IS NULL
    AND EXISTS (
        SELECT 1 FROM punctual_fires AS f WHERE f.schedule_id = t.schedule_id AND f.scheduled_at = t.scheduled_at)
    AND NOT EXISTS (
        SELECT 1 FROM punctual_fires AS f
        WHERE f.schedule_id = t.schedule_id AND f.scheduled_at = t.scheduled_at AND f.task_id = t.id)
ORDER BY t.scheduled_at, t.schedule_id
