-- Ended tasks by when they were due. A summary of each stretch of the table was cheaper, but it only ever grows: once
-- retention has made room for new rows among old ones, it leads everywhere.
CREATE INDEX punctual_task_history_due ON punctual_task_history (run_at, id);
DROP INDEX punctual_task_history_run_at;
