-- The retries of a task: few, and only a look through all tasks would find them.
CREATE INDEX punctual_tasks_retry_of ON punctual_tasks (retry_of) WHERE retry_of IS NOT NULL;
CREATE INDEX punctual_task_history_retry_of ON punctual_task_history (retry_of) WHERE retry_of IS NOT NULL;
