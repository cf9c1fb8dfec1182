-- What workers that claim by the API hold and may hold, which topics have handlers, and who changed what.

-- How long a worker's lease is extended by; null for every other lease, so that nobody else pays for the index.
ALTER TABLE punctual_tasks ADD COLUMN lease_seconds INTEGER;
CREATE INDEX punctual_tasks_pulled ON punctual_tasks (topic) WHERE lease_seconds IS NOT NULL;

-- How many attempts of a topic with a rate may begin.
CREATE TABLE punctual_pull_rates (
    topic       TEXT NOT NULL PRIMARY KEY,
    tokens      REAL NOT NULL,
    refilled_at INTEGER NOT NULL
) STRICT;

-- Topics that a node ever had a handler for: their route stays `handler`.
CREATE TABLE punctual_handled_topics (
    name TEXT NOT NULL PRIMARY KEY
) STRICT;

CREATE TABLE punctual_audit (
    id         BLOB NOT NULL PRIMARY KEY,
    at         INTEGER NOT NULL,
    key_id     BLOB,
    actor      TEXT NOT NULL,
    action     TEXT NOT NULL,
    target     TEXT NOT NULL,
    status     INTEGER NOT NULL,
    request_id TEXT NOT NULL
) STRICT;
CREATE INDEX punctual_audit_at ON punctual_audit (at);
CREATE INDEX punctual_audit_target ON punctual_audit (target, id);
