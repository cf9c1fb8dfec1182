-- Whether an attempt began, a task ended or a fire was missed at or after an instant. Of what runs, those whose lease is the
-- longest are looked at: they began last.
SELECT EXISTS (SELECT FROM punctual_task_history WHERE completed_at >= $1)
    OR EXISTS (SELECT FROM punctual_attempts WHERE started_at >= $1)
    OR EXISTS (
        SELECT FROM (
            SELECT started_at FROM punctual_tasks WHERE status = 'running' ORDER BY lease_expires_at DESC LIMIT 100) AS latest
        WHERE started_at >= $1)
    OR EXISTS (SELECT FROM punctual_missed_fires WHERE noted_at >= $1)
