-- How many tasks are due and wait to be claimed, counted no further than $2.
SELECT count(*)
FROM (
    SELECT FROM punctual_tasks
    WHERE status = 'pending' AND run_at <= coalesce($1::timestamptz, statement_timestamp())
    LIMIT $2
) AS due
