-- Tasks: the live ones, the ended ones, their attempts, and the keys that keep one from being made twice.
-- Instants are microseconds since 1970, ids the 16 bytes of the UUID.

CREATE TABLE punctual_tasks (
    id                BLOB NOT NULL PRIMARY KEY,
    topic             TEXT NOT NULL,
    status            TEXT NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running')),
    priority          INTEGER NOT NULL DEFAULT 0,
    run_at            INTEGER NOT NULL,
    -- When it was first due: a retry keeps its place among the tasks of its serial key.
    first_run_at      INTEGER NOT NULL,
    timezone          TEXT NOT NULL DEFAULT 'UTC',
    payload           TEXT NOT NULL DEFAULT '{}',
    -- A JSON object; null is an empty one.
    metadata          TEXT,
    owner_id          TEXT,
    tenant_id         TEXT,
    correlation_id    TEXT,
    client_request_id TEXT,
    dedupe_key        TEXT,
    serial_key        TEXT,
    timeout_seconds   INTEGER NOT NULL DEFAULT 3600,
    -- The retry policy as JSON; null is the default one.
    retry             TEXT,
    attempt           INTEGER NOT NULL DEFAULT 0,
    -- Attempts lost; the present one counts until it is settled.
    lost              INTEGER NOT NULL DEFAULT 0,
    snoozes           INTEGER NOT NULL DEFAULT 0,
    epoch             INTEGER NOT NULL DEFAULT 0,
    lease_owner       BLOB,
    lease_expires_at  INTEGER,
    error             TEXT,
    schedule_id       BLOB,
    scheduled_at      INTEGER,
    retry_of          BLOB,
    rescheduled_from  BLOB,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER
) STRICT;
-- The order of claims.
CREATE INDEX punctual_tasks_due ON punctual_tasks (topic, priority DESC, run_at, id) WHERE status = 'pending';
CREATE INDEX punctual_tasks_run_at ON punctual_tasks (run_at) WHERE status = 'pending';
CREATE INDEX punctual_tasks_suspect ON punctual_tasks (run_at) WHERE status = 'pending' AND lost > 0;
CREATE INDEX punctual_tasks_lease ON punctual_tasks (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX punctual_tasks_serial ON punctual_tasks (topic, serial_key, first_run_at, id) WHERE serial_key IS NOT NULL;
-- At most one running per serial key, whatever two claimers believe.
CREATE UNIQUE INDEX punctual_tasks_serial_running ON punctual_tasks (topic, serial_key)
    WHERE serial_key IS NOT NULL AND status = 'running';
-- One live task per topic and dedupe key.
CREATE UNIQUE INDEX punctual_tasks_dedupe ON punctual_tasks (topic, dedupe_key) WHERE dedupe_key IS NOT NULL;
CREATE INDEX punctual_tasks_schedule ON punctual_tasks (schedule_id, id) WHERE schedule_id IS NOT NULL;
CREATE INDEX punctual_tasks_owner ON punctual_tasks (owner_id, id) WHERE owner_id IS NOT NULL;
CREATE INDEX punctual_tasks_tenant ON punctual_tasks (tenant_id, id) WHERE tenant_id IS NOT NULL;
CREATE INDEX punctual_tasks_correlation ON punctual_tasks (correlation_id, id) WHERE correlation_id IS NOT NULL;

-- Ended tasks: rows come here with the statement that ends them, and never change.
CREATE TABLE punctual_task_history (
    id                BLOB NOT NULL PRIMARY KEY,
    topic             TEXT NOT NULL,
    status            TEXT NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    priority          INTEGER NOT NULL,
    run_at            INTEGER NOT NULL,
    timezone          TEXT NOT NULL,
    payload           TEXT NOT NULL,
    metadata          TEXT,
    owner_id          TEXT,
    tenant_id         TEXT,
    correlation_id    TEXT,
    client_request_id TEXT,
    dedupe_key        TEXT,
    serial_key        TEXT,
    timeout_seconds   INTEGER NOT NULL,
    retry             TEXT,
    attempt           INTEGER NOT NULL,
    lost              INTEGER NOT NULL,
    snoozes           INTEGER NOT NULL,
    epoch             INTEGER NOT NULL,
    -- Where the last attempt ran and how it ended; null if there was none.
    last_node_id      BLOB,
    last_outcome      TEXT,
    result            TEXT,
    error             TEXT,
    schedule_id       BLOB,
    scheduled_at      INTEGER,
    retry_of          BLOB,
    rescheduled_from  BLOB,
    created_at        INTEGER NOT NULL,
    started_at        INTEGER,
    completed_at      INTEGER NOT NULL
) STRICT;
CREATE INDEX punctual_task_history_completed_at ON punctual_task_history (completed_at);
CREATE INDEX punctual_task_history_topic ON punctual_task_history (topic, id);
CREATE INDEX punctual_task_history_status ON punctual_task_history (status, id) WHERE status <> 'completed';
CREATE INDEX punctual_task_history_schedule ON punctual_task_history (schedule_id, id) WHERE schedule_id IS NOT NULL;
-- The order of an audit of fires.
CREATE INDEX punctual_task_history_fired ON punctual_task_history (completed_at) WHERE schedule_id IS NOT NULL;
CREATE INDEX punctual_task_history_owner ON punctual_task_history (owner_id, id) WHERE owner_id IS NOT NULL;
CREATE INDEX punctual_task_history_tenant ON punctual_task_history (tenant_id, id) WHERE tenant_id IS NOT NULL;
CREATE INDEX punctual_task_history_correlation ON punctual_task_history (correlation_id, id) WHERE correlation_id IS NOT NULL;

-- Attempts that ended in anything but success at the first try; that one stands in the history row.
CREATE TABLE punctual_attempts (
    task_id    BLOB NOT NULL,
    epoch      INTEGER NOT NULL,
    number     INTEGER NOT NULL,
    node_id    BLOB NOT NULL,
    started_at INTEGER NOT NULL,
    ended_at   INTEGER NOT NULL,
    outcome    TEXT NOT NULL,
    error      TEXT,
    PRIMARY KEY (task_id, epoch)
) STRICT;
CREATE INDEX punctual_attempts_started_at ON punctual_attempts (started_at);

-- Every clientRequestId ever used, also after retention removed what it made.
CREATE TABLE punctual_client_requests (
    client_request_id TEXT NOT NULL PRIMARY KEY,
    -- 'task' or 'schedule', and which.
    made              TEXT NOT NULL,
    id                BLOB NOT NULL
) STRICT;

-- Answers kept under Idempotency-Keys.
CREATE TABLE punctual_answers (
    owner       TEXT NOT NULL,
    key         TEXT NOT NULL,
    fingerprint TEXT NOT NULL,
    status      INTEGER NOT NULL,
    body        TEXT NOT NULL,
    created_at  INTEGER NOT NULL,
    PRIMARY KEY (owner, key)
) STRICT;
CREATE INDEX punctual_answers_created_at ON punctual_answers (created_at);
