-- A schedule that names the calendar. Read as json, not as jsonb: payloads may hold numbers that jsonb cannot.
SELECT name
FROM punctual_schedules
WHERE (definition::json -> 'excludeCalendars')::jsonb ? $1
ORDER BY name
LIMIT 1
