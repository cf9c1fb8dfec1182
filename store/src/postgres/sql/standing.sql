-- What stands before a live task: due tasks of its topic in the order of claims, those that run, and the first of its key.
SELECT
    (SELECT count(*) FROM (
        SELECT 1 FROM punctual_tasks AS p
        WHERE p.topic = t.topic AND p.status = 'pending' AND p.run_at <= coalesce($2::timestamptz, statement_timestamp())
            AND (p.priority > t.priority OR (p.priority = t.priority AND (p.run_at, p.id) < (t.run_at, t.id)))
        LIMIT $3) AS ahead),
    (SELECT count(*) FROM punctual_tasks AS r
     WHERE r.topic = t.topic AND r.status = 'running' AND r.lease_expires_at IS NOT NULL),
    (SELECT e.id FROM punctual_tasks AS e
     WHERE e.topic = t.topic AND e.serial_key = t.serial_key AND e.id <> t.id
        AND (e.status = 'running' OR (e.first_run_at, e.id) < (t.first_run_at, t.id))
     ORDER BY e.status = 'running' DESC, e.first_run_at, e.id
     LIMIT 1)
FROM punctual_tasks AS t
WHERE t.id = $1
