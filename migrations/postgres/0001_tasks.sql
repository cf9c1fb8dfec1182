-- Tasks: the live ones, the ended ones, their attempts, and the keys that keep one from being made twice.

CREATE TABLE punctual_tasks (
    id                uuid PRIMARY KEY,
    topic             text COLLATE "C" NOT NULL,
    status            text COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'running')),
    priority          integer NOT NULL DEFAULT 0,
    run_at            timestamptz NOT NULL,
    -- When it was first due: a retry keeps its place among the tasks of its serial key.
    first_run_at      timestamptz NOT NULL,
    timezone          text NOT NULL DEFAULT 'UTC',
    payload           text NOT NULL DEFAULT '{}',
    -- A JSON object; null is an empty one.
    metadata          text,
    owner_id          text COLLATE "C",
    tenant_id         text COLLATE "C",
    correlation_id    text COLLATE "C",
    client_request_id text COLLATE "C",
    dedupe_key        text COLLATE "C",
    serial_key        text COLLATE "C",
    timeout_seconds   integer NOT NULL DEFAULT 3600,
    -- The retry policy as JSON; null is the default one.
    retry             text,
    attempt           integer NOT NULL DEFAULT 0,
    -- Attempts lost; the present one counts until it is settled.
    lost              integer NOT NULL DEFAULT 0,
    snoozes           integer NOT NULL DEFAULT 0,
    epoch             bigint NOT NULL DEFAULT 0,
    lease_owner       uuid,
    lease_expires_at  timestamptz,
    error             text,
    schedule_id       uuid,
    scheduled_at      timestamptz,
    retry_of          uuid,
    rescheduled_from  uuid,
    created_at        timestamptz NOT NULL,
    started_at        timestamptz
);
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
    id                uuid PRIMARY KEY,
    topic             text COLLATE "C" NOT NULL,
    status            text COLLATE "C" NOT NULL CHECK (status IN ('completed', 'failed', 'cancelled')),
    priority          integer NOT NULL,
    run_at            timestamptz NOT NULL,
    timezone          text NOT NULL,
    payload           text NOT NULL,
    metadata          text,
    owner_id          text COLLATE "C",
    tenant_id         text COLLATE "C",
    correlation_id    text COLLATE "C",
    client_request_id text COLLATE "C",
    dedupe_key        text COLLATE "C",
    serial_key        text COLLATE "C",
    timeout_seconds   integer NOT NULL,
    retry             text,
    attempt           integer NOT NULL,
    lost              integer NOT NULL,
    snoozes           integer NOT NULL,
    epoch             bigint NOT NULL,
    -- Where the last attempt ran and how it ended; null if there was none.
    last_node_id      uuid,
    last_outcome      text COLLATE "C",
    result            text,
    error             text,
    schedule_id       uuid,
    scheduled_at      timestamptz,
    retry_of          uuid,
    rescheduled_from  uuid,
    created_at        timestamptz NOT NULL,
    started_at        timestamptz,
    completed_at      timestamptz NOT NULL
);
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
    task_id    uuid NOT NULL,
    epoch      bigint NOT NULL,
    number     integer NOT NULL,
    node_id    uuid NOT NULL,
    started_at timestamptz NOT NULL,
    ended_at   timestamptz NOT NULL,
    outcome    text COLLATE "C" NOT NULL,
    error      text,
    PRIMARY KEY (task_id, epoch)
);
CREATE INDEX punctual_attempts_started_at ON punctual_attempts (started_at);

-- Every clientRequestId ever used, also after retention removed what it made.
CREATE TABLE punctual_client_requests (
    client_request_id text COLLATE "C" PRIMARY KEY,
    -- 'task' or 'schedule', and which.
    made              text NOT NULL,
    id                uuid NOT NULL
);

-- Answers kept under Idempotency-Keys.
CREATE TABLE punctual_answers (
    owner       text COLLATE "C" NOT NULL,
    key         text COLLATE "C" NOT NULL,
    fingerprint text NOT NULL,
    status      integer NOT NULL,
    body        text NOT NULL,
    created_at  timestamptz NOT NULL,
    PRIMARY KEY (owner, key)
);
CREATE INDEX punctual_answers_created_at ON punctual_answers (created_at);
