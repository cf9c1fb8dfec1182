-- Messages on their way out, and every dedupe key ever used.

CREATE TABLE punctual_outbox (
    id              uuid PRIMARY KEY,
    dedupe_key      text COLLATE "C" NOT NULL,
    transport       text NOT NULL,
    recipient       text NOT NULL,
    body            text NOT NULL,
    status          text COLLATE "C" NOT NULL DEFAULT 'pending' CHECK (status IN ('pending', 'sent', 'failed')),
    attempt         integer NOT NULL DEFAULT 0,
    epoch           bigint NOT NULL DEFAULT 0,
    next_attempt_at timestamptz NOT NULL,
    provider_id     text,
    error           text,
    created_at      timestamptz NOT NULL,
    completed_at    timestamptz
);
CREATE INDEX punctual_outbox_due ON punctual_outbox (next_attempt_at, id) WHERE status = 'pending';
CREATE INDEX punctual_outbox_status ON punctual_outbox (status, id);
CREATE INDEX punctual_outbox_sent ON punctual_outbox (completed_at) WHERE status = 'sent';

CREATE TABLE punctual_outbox_keys (
    dedupe_key  text COLLATE "C" PRIMARY KEY,
    message_id  uuid NOT NULL,
    provider_id text
);
