-- What ended in each minute from ?1 on, ?2 of them: counted by index, and of each the lag of its last few.
WITH RECURSIVE minutes (at, left) AS (
    SELECT ?1, ?2
    UNION ALL
    SELECT at + 60000000, left - 1 FROM minutes WHERE left > 1
)
SELECT
    m.at,
    (SELECT count(*) FROM punctual_task_history AS h INDEXED BY punctual_task_history_completed_at
     WHERE h.completed_at >= m.at AND h.completed_at < m.at + 60000000),
    (SELECT count(*) FROM punctual_task_history AS h INDEXED BY punctual_task_history_failed
     WHERE h.status = 'failed' AND h.completed_at >= m.at AND h.completed_at < m.at + 60000000),
    (SELECT CAST(avg(max(s.started_at - s.run_at, 0)) AS INTEGER) FROM (
        SELECT h.started_at, h.run_at FROM punctual_task_history AS h INDEXED BY punctual_task_history_completed_at
        WHERE h.completed_at >= m.at AND h.completed_at < m.at + 60000000
        ORDER BY h.completed_at DESC LIMIT ?3
     ) AS s WHERE s.started_at IS NOT NULL)
FROM minutes AS m
ORDER BY m.at
