-- How many tasks of each topic workers hold, in the order given.
SELECT (
    SELECT count(*) FROM punctual_tasks INDEXED BY punctual_tasks_pulled
    WHERE topic = w.value AND lease_seconds IS NOT NULL)
FROM json_each(?1) AS w
ORDER BY w.key
