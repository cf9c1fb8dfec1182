-- Notes that a queue is given a message.
INSERT INTO punctual_message_jobs (message_id, prefix, queue, job_id) VALUES ($1, $2, $3, $4)
ON CONFLICT (message_id) DO UPDATE SET prefix = excluded.prefix, queue = excluded.queue, job_id = excluded.job_id
