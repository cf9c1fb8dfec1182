-- Fills the history: ?1 tasks of topic ?2 that ended within the last 20 days. For measuring only.
WITH RECURSIVE numbers (i) AS (
    SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < ?1
), ended (i, at) AS (
    SELECT i, (unixepoch() - 20 * 86400) * 1000000 + i * (19 * 86400 * 1000000 / ?1) FROM numbers
)
INSERT INTO punctual_task_history (
    id, topic, status, priority, run_at, timezone, payload, timeout_seconds, attempt, lost, snoozes, epoch,
    last_node_id, last_outcome, created_at, started_at, completed_at
)
SELECT
    -- In the order of time, as real ones are.
    unhex(printf('%032x', i)), ?2, 'completed', 0, at, 'UTC', '{"filler":' || i || '}', 3600, 1, 0, 0, 1,
    unhex('00000000000000000000000000000001'), 'completed', at, at, at
FROM ended
