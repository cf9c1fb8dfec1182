-- Fills the history: $1 tasks of topic $2 that ended within the last 20 days. For measuring only.
INSERT INTO punctual_task_history (
    id, topic, status, priority, run_at, timezone, payload, timeout_seconds, attempt, lost, snoozes, epoch,
    last_node_id, last_outcome, created_at, started_at, completed_at
)
SELECT
    -- In the order of time, as real ones are.
    lpad(to_hex(i), 32, '0')::uuid, $2, 'completed', 0, ended.at, 'UTC', '{"filler":' || i || '}', 3600, 1, 0, 0, 1,
    '00000000-0000-0000-0000-000000000001', 'completed', ended.at, ended.at, ended.at
FROM generate_series(1, $1::bigint) AS i
CROSS JOIN LATERAL (
    SELECT statement_timestamp() - interval '20 days' + i * (interval '19 days' / $1) AS at
) AS ended
