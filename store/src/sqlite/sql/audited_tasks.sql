-- How many tasks of fires ended from after ?1 up to the moment of number ?3, or up to ?2, and which moment that is.
SELECT count(*), max(completed_at)
FROM punctual_task_history INDEXED BY punctual_task_history_fired
WHERE schedule_id IS NOT NULL AND completed_at > ?1 AND completed_at <= coalesce((
    SELECT completed_at FROM punctual_task_history INDEXED BY punctual_task_history_fired
    WHERE schedule_id IS NOT NULL AND completed_at > ?1 AND completed_at <= ?2
    ORDER BY completed_at
    LIMIT 1 OFFSET ?3 - 1), ?2)
