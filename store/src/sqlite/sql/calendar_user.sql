-- A schedule that names the calendar.
SELECT s.name
FROM punctual_schedules AS s, json_each(s.definition, '$.excludeCalendars') AS c
WHERE c.value = ?1
ORDER BY s.name
LIMIT 1
