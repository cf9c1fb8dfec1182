-- What somebody was told of and when, and what alerts are made of: who became the leader, and which tasks failed lately.

CREATE TABLE punctual_alerts (
    cause     TEXT NOT NULL PRIMARY KEY,
    raised_at INTEGER NOT NULL
) STRICT;

CREATE TABLE punctual_leader_changes (
    node_id    BLOB NOT NULL,
    changed_at INTEGER NOT NULL
) STRICT;
CREATE INDEX punctual_leader_changes_changed_at ON punctual_leader_changes (changed_at);

CREATE INDEX punctual_task_history_failed ON punctual_task_history (completed_at) WHERE status = 'failed';
