-- Whether an attempt began, a task ended or a fire was missed at or after an instant. Of what runs, those whose lease is the
-- longest are looked at: they began last.
SELECT EXISTS (SELECT 1 FROM punctual_task_history WHERE completed_at >= ?1)
    OR EXISTS (SELECT 1 FROM punctual_attempts WHERE started_at >= ?1)
    OR EXISTS (
        SELECT 1 FROM (
            SELECT started_at FROM punctual_tasks INDEXED BY punctual_tasks_lease
            WHERE lease_expires_at IS NOT NULL ORDER BY lease_expires_at DESC LIMIT 100)
        WHERE started_at >= ?1)
    OR EXISTS (SELECT 1 FROM punctual_missed_fires INDEXED BY punctual_missed_fires_noted_at WHERE noted_at >= ?1)
