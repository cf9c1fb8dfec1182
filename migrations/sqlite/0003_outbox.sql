-- Messages on their way out, and every dedupe key ever used.

CREATE TABLE punctual_outbox (
    id              BLOB NOT NULL PRIMARY KEY,
    dedupe_key      TEXT NOT NULL,
    transport       TEXT NOT NULL,
    recipient       TEXT NOT NULL,
    body            TEXT NOT NULL,
    status          TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
    attempt         INTEGER NOT NULL DEFAULT 0,
    epoch           INTEGER NOT NULL DEFAULT 0,
    next_attempt_at INTEGER NOT NULL,
    provider_id     TEXT,
    error           TEXT,
    created_at      INTEGER NOT NULL,
    completed_at    INTEGER
) STRICT;
CREATE INDEX punctual_outbox_due ON punctual_outbox (next_attempt_at, id) WHERE status = 'pending';
CREATE INDEX punctual_outbox_status ON punctual_outbox (status, id);
CREATE INDEX punctual_outbox_sent ON punctual_outbox (completed_at) WHERE status = 'sent';

CREATE TABLE punctual_outbox_keys (
    dedupe_key  TEXT NOT NULL PRIMARY KEY,
    message_id  BLOB NOT NULL,
    provider_id TEXT
) STRICT;
