-- The summary of each stretch of the history knows the ids as well: which of the tasks that were due before an instant were
-- created after it, or none, as nearly always.
DROP INDEX punctual_task_history_run_at;
CREATE INDEX punctual_task_history_run_at ON punctual_task_history USING brin (run_at, id) WITH (pages_per_range = 32);
