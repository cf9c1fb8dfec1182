-- The schedule that last had a name.
SELECT schedule_id FROM punctual_schedule_history
WHERE schedule::json -> 'definition' ->> 'name' = $1
ORDER BY changed_at DESC
LIMIT 1
