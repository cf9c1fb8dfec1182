-- What lists need that ask for few of many tasks.

-- Those that run are few, and only a look through all live ones would find them. As large as the one in its place: what
-- has a lease runs.
DROP INDEX punctual_tasks_lease;
CREATE INDEX punctual_tasks_lease ON punctual_tasks (lease_expires_at) WHERE status = 'running';

-- By when they were due. Ended ones come in about that order, so a summary of each stretch of the table says where to look,
-- and costs next to nothing.
CREATE INDEX punctual_task_history_run_at ON punctual_task_history USING brin (run_at) WITH (pages_per_range = 32);

-- The audit log by who and by what.
CREATE INDEX punctual_audit_key ON punctual_audit (key_id, id) WHERE key_id IS NOT NULL;
CREATE INDEX punctual_audit_actor ON punctual_audit (actor, id);
CREATE INDEX punctual_audit_action ON punctual_audit (action, id);
