-- How attempts ended that were settled earlier: by the history where they ended the task, else by their own rows.
SELECT id, epoch, status, last_outcome FROM punctual_task_history WHERE id = ANY ($1) AND last_outcome IS NOT NULL
UNION ALL
SELECT task_id, epoch, 'pending', outcome FROM punctual_attempts AS a
WHERE task_id = ANY ($1)
    AND NOT EXISTS (
        SELECT FROM punctual_task_history AS h
        WHERE h.id = a.task_id AND h.epoch = a.epoch AND h.last_outcome IS NOT NULL)
