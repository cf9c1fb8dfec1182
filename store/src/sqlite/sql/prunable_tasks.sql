-- Ended tasks that retention does not keep: those of ?1's topics by a time of their own, all others by ?2.
SELECT id FROM (
    SELECT h.id
    FROM json_each(?1) AS own
    CROSS JOIN punctual_task_history AS h INDEXED BY punctual_task_history_topic
        ON h.topic = own.value ->> 0 AND h.completed_at < own.value ->> 1
    LIMIT ?3)
UNION ALL
SELECT id FROM (
    SELECT h.id
    FROM punctual_task_history AS h INDEXED BY punctual_task_history_completed_at
    WHERE h.completed_at < ?2 AND h.topic NOT IN (SELECT value ->> 0 FROM json_each(?1))
    ORDER BY h.completed_at
    LIMIT ?3)
LIMIT ?3
