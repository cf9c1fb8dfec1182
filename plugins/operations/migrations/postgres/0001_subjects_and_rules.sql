CREATE TABLE operations_subjects (
    id uuid PRIMARY KEY,
    subject_type text NOT NULL CHECK (subject_type IN ('event', 'task')),
    title text NOT NULL,
    start_at timestamptz,
    end_at timestamptz,
    is_all_day boolean NOT NULL,
    timezone text,
    creator text NOT NULL,
    people text NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX operations_subjects_type ON operations_subjects (subject_type, id);

CREATE TABLE operations_notification_rules (
    id uuid PRIMARY KEY,
    subject_type text NOT NULL CHECK (subject_type IN ('event', 'task')),
    subject_id uuid NOT NULL,
    kind text NOT NULL CHECK (kind IN ('start', 'end')),
    rule text NOT NULL,
    rule_key text NOT NULL,
    schedule_id uuid,
    sync_status text NOT NULL CHECK (sync_status IN ('pending', 'synced', 'failed')),
    sync_error text,
    channels text NOT NULL,
    active boolean NOT NULL,
    deleted_at timestamptz,
    last_sent_at timestamptz,
    version bigint NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
-- One automatic rule for each kind, and no other twice.
CREATE UNIQUE INDEX operations_rules_once ON operations_notification_rules (subject_id, rule_key)
    WHERE deleted_at IS NULL;
CREATE INDEX operations_rules_unsynced ON operations_notification_rules (id)
    WHERE sync_status <> 'synced' AND deleted_at IS NULL;
