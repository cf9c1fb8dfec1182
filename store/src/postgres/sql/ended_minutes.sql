-- What ended in each minute from $1 on, $2 of them: counted by index, and of each the lag of its last few.
SELECT
    m.at,
    (SELECT count(*) FROM punctual_task_history AS h
     WHERE h.completed_at >= m.at AND h.completed_at < m.at + interval '1 minute'),
    (SELECT count(*) FROM punctual_task_history AS h
     WHERE h.status = 'failed' AND h.completed_at >= m.at AND h.completed_at < m.at + interval '1 minute'),
    (SELECT (avg(greatest(extract(epoch FROM s.started_at - s.run_at), 0)) * 1000000)::bigint FROM (
        SELECT h.started_at, h.run_at FROM punctual_task_history AS h
        WHERE h.completed_at >= m.at AND h.completed_at < m.at + interval '1 minute'
        ORDER BY h.completed_at DESC LIMIT $3
     ) AS s WHERE s.started_at IS NOT NULL)
FROM (SELECT $1::timestamptz + n * interval '1 minute' AS at FROM generate_series(0, $2 - 1) AS n) AS m
ORDER BY m.at
