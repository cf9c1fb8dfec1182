-- Forgets the messages of these jobs.
DELETE FROM punctual_message_jobs WHERE prefix = ?1 AND queue = ?2 AND job_id IN (SELECT value FROM json_each(?3))
