-- Messages that a queue was given, after one of them.
SELECT message_id, job_id FROM punctual_message_jobs
WHERE prefix = ?1 AND queue = ?2 AND message_id > ?3 ORDER BY message_id LIMIT ?4
