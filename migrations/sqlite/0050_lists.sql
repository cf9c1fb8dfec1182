-- What lists need that ask for few of many. Lists of tasks need nothing here: where no index fits, SQLite goes back from the newest.

-- The audit log by who and by what.
CREATE INDEX punctual_audit_key ON punctual_audit (key_id, id) WHERE key_id IS NOT NULL;
CREATE INDEX punctual_audit_actor ON punctual_audit (actor, id);
CREATE INDEX punctual_audit_action ON punctual_audit (action, id);
