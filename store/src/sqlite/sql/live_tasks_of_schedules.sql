-- How many tasks of these schedules have not ended; a schedule without any is left out.
SELECT schedule_id, count(*)
FROM punctual_tasks INDEXED BY punctual_tasks_schedule
WHERE schedule_id IN (SELECT unhex(value) FROM json_each(?1))
GROUP BY schedule_id
