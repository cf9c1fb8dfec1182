-- The latest instant at which something is known to have happened; none in a file that nobody has used. And the one up to
-- which such instants were found to be wrong.
SELECT max(at), (SELECT CAST(value AS INTEGER) FROM punctual_facts WHERE name = 'clock_was_ahead') FROM (
    SELECT max(completed_at) AS at FROM punctual_task_history
    UNION ALL SELECT max(started_at) FROM punctual_attempts
    UNION ALL SELECT max(fired_at) FROM punctual_fires
    UNION ALL SELECT max(noted_at) FROM punctual_missed_fires
    UNION ALL SELECT max(seen_at) FROM punctual_nodes
    -- What runs: whoever holds it has a lease, or a queue has it.
    UNION ALL SELECT max(started_at) FROM punctual_tasks INDEXED BY punctual_tasks_lease WHERE lease_expires_at IS NOT NULL
    UNION ALL SELECT max(handed_over_at) FROM punctual_hand_overs)
