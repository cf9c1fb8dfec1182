-- How many tasks failed after ?1, counted up to ?2; how often a node became the leader.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM punctual_task_history INDEXED BY punctual_task_history_failed
        WHERE status = 'failed' AND completed_at > ?1 LIMIT ?2)),
    (SELECT count(*) FROM punctual_leader_changes WHERE changed_at > ?1)
