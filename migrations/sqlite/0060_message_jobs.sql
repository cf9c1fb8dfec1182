-- Messages that a BullMQ queue was given and has not ended yet: what the queue loses is given to it again.

CREATE TABLE punctual_message_jobs (
    message_id BLOB NOT NULL PRIMARY KEY,
    prefix     TEXT NOT NULL,
    queue      TEXT NOT NULL,
    job_id     TEXT NOT NULL
) STRICT;
CREATE INDEX punctual_message_jobs_job ON punctual_message_jobs (prefix, queue, job_id);
CREATE INDEX punctual_message_jobs_queue ON punctual_message_jobs (prefix, queue, message_id);
