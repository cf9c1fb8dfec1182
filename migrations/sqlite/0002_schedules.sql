-- Schedules, what they were, their fires, calendars, and definitions of topics.

CREATE TABLE punctual_schedules (
    id                BLOB NOT NULL PRIMARY KEY,
    name              TEXT NOT NULL UNIQUE,
    topic             TEXT NOT NULL,
    owner_id          TEXT,
    -- What the caller said, as JSON.
    definition        TEXT NOT NULL,
    client_request_id TEXT,
    enabled           INTEGER NOT NULL,
    pause_note        TEXT,
    paused_until      INTEGER,
    last_fired_at     INTEGER,
    next_fire_at      INTEGER,
    -- Instants up to here are accounted for and never fire again.
    fired_through     INTEGER,
    -- The release of zone data that the next instant was computed with.
    tz_version        TEXT NOT NULL,
    fires_made        INTEGER NOT NULL DEFAULT 0,
    created_at        INTEGER NOT NULL,
    updated_at        INTEGER NOT NULL,
    version           INTEGER NOT NULL
) STRICT;
CREATE INDEX punctual_schedules_next ON punctual_schedules (next_fire_at) WHERE next_fire_at IS NOT NULL;
CREATE INDEX punctual_schedules_paused ON punctual_schedules (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX punctual_schedules_topic ON punctual_schedules (topic, id);
CREATE INDEX punctual_schedules_owner ON punctual_schedules (owner_id, id) WHERE owner_id IS NOT NULL;

-- What a schedule was from when on: the whole schedule as JSON, null where it was deleted.
CREATE TABLE punctual_schedule_history (
    schedule_id BLOB NOT NULL,
    version     INTEGER NOT NULL,
    changed_at  INTEGER NOT NULL,
    schedule    TEXT,
    PRIMARY KEY (schedule_id, version)
) STRICT;

CREATE TABLE punctual_fires (
    id           BLOB NOT NULL PRIMARY KEY,
    schedule_id  BLOB NOT NULL,
    kind         TEXT NOT NULL CHECK (kind IN ('schedule', 'manual', 'backfill')),
    scheduled_at INTEGER NOT NULL,
    fired_at     INTEGER NOT NULL,
    -- Why it made no task; null if it made one.
    reason       TEXT,
    -- The last instant of a run of skipped ones.
    until_at     INTEGER,
    count        INTEGER NOT NULL DEFAULT 1,
    tz_version   TEXT NOT NULL,
    task_id      BLOB,
    CHECK ((reason IS NULL) = (task_id IS NOT NULL)),
    UNIQUE (schedule_id, scheduled_at, kind)
) STRICT;
CREATE INDEX punctual_fires_newest ON punctual_fires (schedule_id, id);
CREATE INDEX punctual_fires_fired_at ON punctual_fires (fired_at);

-- Instants that passed without a fire, noted by whichever node saw it first.
CREATE TABLE punctual_missed_fires (
    schedule_id  BLOB NOT NULL,
    scheduled_at INTEGER NOT NULL,
    name         TEXT NOT NULL,
    topic        TEXT NOT NULL,
    noted_at     INTEGER NOT NULL,
    PRIMARY KEY (schedule_id, scheduled_at)
) STRICT;
CREATE INDEX punctual_missed_fires_noted_at ON punctual_missed_fires (noted_at, schedule_id);

CREATE TABLE punctual_calendars (
    name       TEXT NOT NULL PRIMARY KEY,
    definition TEXT NOT NULL
) STRICT;

CREATE TABLE punctual_topics (
    name       TEXT NOT NULL PRIMARY KEY,
    definition TEXT NOT NULL
) STRICT;
