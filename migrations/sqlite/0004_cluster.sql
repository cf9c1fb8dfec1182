-- What nodes know of each other, and who may talk to them.

CREATE TABLE punctual_nodes (
    id         BLOB NOT NULL PRIMARY KEY,
    version    TEXT NOT NULL,
    tz_version TEXT NOT NULL,
    about      TEXT NOT NULL,
    started_at INTEGER NOT NULL,
    seen_at    INTEGER NOT NULL
) STRICT;

CREATE TABLE punctual_leaderships (
    name       TEXT NOT NULL PRIMARY KEY,
    owner      BLOB NOT NULL,
    epoch      INTEGER NOT NULL,
    expires_at INTEGER NOT NULL
) STRICT;

CREATE TABLE punctual_state_cells (
    name    TEXT NOT NULL PRIMARY KEY,
    value   TEXT NOT NULL,
    version INTEGER NOT NULL
) STRICT;

CREATE TABLE punctual_api_keys (
    id         BLOB NOT NULL PRIMARY KEY,
    name       TEXT NOT NULL,
    role       TEXT NOT NULL CHECK (role IN ('read', 'submit', 'operate', 'admin')),
    -- Topic patterns as a JSON array; empty is no limit.
    topics     TEXT NOT NULL,
    hash       BLOB NOT NULL UNIQUE,
    created_at INTEGER NOT NULL,
    revoked_at INTEGER
) STRICT;

-- Facts that all nodes share, such as the newest release of zone data.
CREATE TABLE punctual_facts (
    name  TEXT NOT NULL PRIMARY KEY,
    value TEXT NOT NULL
) STRICT;
