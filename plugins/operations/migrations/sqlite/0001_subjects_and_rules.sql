CREATE TABLE operations_subjects (
    id BLOB PRIMARY KEY,
    subject_type TEXT NOT NULL CHECK (subject_type IN ('event', 'task')),
    title TEXT NOT NULL,
    start_at TEXT,
    end_at TEXT,
    is_all_day INTEGER NOT NULL,
    timezone TEXT,
    creator TEXT NOT NULL,
    people TEXT NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
CREATE INDEX operations_subjects_type ON operations_subjects (subject_type, id);

CREATE TABLE operations_notification_rules (
    id BLOB PRIMARY KEY,
    subject_type TEXT NOT NULL CHECK (subject_type IN ('event', 'task')),
    subject_id BLOB NOT NULL,
    kind TEXT NOT NULL CHECK (kind IN ('start', 'end')),
    rule TEXT NOT NULL,
    rule_key TEXT NOT NULL,
    schedule_id BLOB,
    sync_status TEXT NOT NULL CHECK (sync_status IN ('pending', 'synced', 'failed')),
    sync_error TEXT,
    channels TEXT NOT NULL,
    active INTEGER NOT NULL,
    deleted_at TEXT,
    last_sent_at TEXT,
    version INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
-- One automatic rule for each kind, and no other twice.
CREATE UNIQUE INDEX operations_rules_once ON operations_notification_rules (subject_id, rule_key)
    WHERE deleted_at IS NULL;
CREATE INDEX operations_rules_unsynced ON operations_notification_rules (id)
    WHERE sync_status <> 'synced' AND deleted_at IS NULL;
