-- What workers that claim by the API hold and may hold, which topics have handlers, and who changed what.

-- How long a worker's lease is extended by; null for every other lease, so that nobody else pays for the index.
ALTER TABLE punctual_tasks ADD COLUMN lease_seconds integer;
CREATE INDEX punctual_tasks_pulled ON punctual_tasks (topic) WHERE lease_seconds IS NOT NULL;

-- How many attempts of a topic with a rate may begin, on all nodes together.
CREATE TABLE punctual_pull_rates (
    topic       text COLLATE "C" PRIMARY KEY,
    tokens      double precision NOT NULL,
    refilled_at timestamptz NOT NULL
);

-- Topics that a node ever had a handler for: their route stays `handler`.
CREATE TABLE punctual_handled_topics (
    name text COLLATE "C" PRIMARY KEY
);

CREATE TABLE punctual_audit (
    id         uuid PRIMARY KEY,
    at         timestamptz NOT NULL,
    key_id     uuid,
    actor      text NOT NULL,
    action     text COLLATE "C" NOT NULL,
    target     text COLLATE "C" NOT NULL,
    status     integer NOT NULL,
    request_id text NOT NULL
);
CREATE INDEX punctual_audit_at ON punctual_audit (at);
CREATE INDEX punctual_audit_target ON punctual_audit (target, id);
