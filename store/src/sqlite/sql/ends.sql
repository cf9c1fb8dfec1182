-- How the last tasks ended that ended after ?1, at most ?2 of them: those of schedules, then all others.
SELECT count(*) FILTER (WHERE status = 'completed' AND is_of_schedule),
    count(*) FILTER (WHERE status = 'failed' AND is_of_schedule),
    count(*) FILTER (WHERE status = 'completed' AND NOT is_of_schedule),
    count(*) FILTER (WHERE status = 'failed' AND NOT is_of_schedule)
FROM (
    SELECT status, schedule_id IS NOT NULL AS is_of_schedule
    FROM punctual_task_history INDEXED BY punctual_task_history_completed_at
    WHERE completed_at > ?1
    ORDER BY completed_at DESC
    LIMIT ?2)
