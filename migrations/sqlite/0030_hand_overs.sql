-- Tasks that BullMQ queues have accepted, and up to where the events of those queues were read.

-- A row counts while its task runs by the same epoch and without an end of its lease.
CREATE TABLE punctual_hand_overs (
    task_id        BLOB NOT NULL PRIMARY KEY,
    epoch          INTEGER NOT NULL,
    prefix         TEXT NOT NULL,
    queue          TEXT NOT NULL,
    job_id         TEXT NOT NULL,
    -- The number of the task's attempt that was the first of the job.
    first_attempt  INTEGER NOT NULL,
    handed_over_at INTEGER NOT NULL,
    -- When its time is up.
    ends_at        INTEGER NOT NULL
) STRICT;
CREATE INDEX punctual_hand_overs_job ON punctual_hand_overs (prefix, queue, job_id);
CREATE INDEX punctual_hand_overs_queue ON punctual_hand_overs (prefix, queue, task_id);
CREATE INDEX punctual_hand_overs_ends_at ON punctual_hand_overs (ends_at);

CREATE TABLE punctual_queues (
    prefix   TEXT NOT NULL,
    queue    TEXT NOT NULL,
    -- The last event that was read; empty for none.
    position TEXT NOT NULL DEFAULT '',
    PRIMARY KEY (prefix, queue)
) STRICT;
