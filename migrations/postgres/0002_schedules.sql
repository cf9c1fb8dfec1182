-- Schedules, what they were, their fires, calendars, and definitions of topics.

CREATE TABLE punctual_schedules (
    id                uuid PRIMARY KEY,
    name              text COLLATE "C" NOT NULL UNIQUE,
    topic             text COLLATE "C" NOT NULL,
    owner_id          text COLLATE "C",
    -- What the caller said, as JSON.
    definition        text NOT NULL,
    client_request_id text,
    enabled           boolean NOT NULL,
    pause_note        text,
    paused_until      timestamptz,
    last_fired_at     timestamptz,
    next_fire_at      timestamptz,
    -- Instants up to here are accounted for and never fire again.
    fired_through     timestamptz,
    -- The release of zone data that the next instant was computed with.
    tz_version        text NOT NULL,
    fires_made        bigint NOT NULL DEFAULT 0,
    created_at        timestamptz NOT NULL,
    updated_at        timestamptz NOT NULL,
    version           bigint NOT NULL
);
CREATE INDEX punctual_schedules_next ON punctual_schedules (next_fire_at) WHERE next_fire_at IS NOT NULL;
CREATE INDEX punctual_schedules_paused ON punctual_schedules (paused_until) WHERE paused_until IS NOT NULL;
CREATE INDEX punctual_schedules_topic ON punctual_schedules (topic, id);
CREATE INDEX punctual_schedules_owner ON punctual_schedules (owner_id, id) WHERE owner_id IS NOT NULL;

-- What a schedule was from when on: the whole schedule as JSON, null where it was deleted.
CREATE TABLE punctual_schedule_history (
    schedule_id uuid NOT NULL,
    version     bigint NOT NULL,
    changed_at  timestamptz NOT NULL,
    schedule    text,
    PRIMARY KEY (schedule_id, version)
);

CREATE TABLE punctual_fires (
    id           uuid PRIMARY KEY,
    schedule_id  uuid NOT NULL,
    kind         text COLLATE "C" NOT NULL CHECK (kind IN ('schedule', 'manual', 'backfill')),
    scheduled_at timestamptz NOT NULL,
    fired_at     timestamptz NOT NULL,
    -- Why it made no task; null if it made one.
    reason       text COLLATE "C",
    -- The last instant of a run of skipped ones.
    until_at     timestamptz,
    count        bigint NOT NULL DEFAULT 1,
    tz_version   text NOT NULL,
    task_id      uuid,
    CHECK ((reason IS NULL) = (task_id IS NOT NULL)),
    UNIQUE (schedule_id, scheduled_at, kind)
);
CREATE INDEX punctual_fires_newest ON punctual_fires (schedule_id, id);
CREATE INDEX punctual_fires_fired_at ON punctual_fires (fired_at);

-- Instants that passed without a fire, noted by whichever node saw it first.
CREATE TABLE punctual_missed_fires (
    schedule_id  uuid NOT NULL,
    scheduled_at timestamptz NOT NULL,
    name         text NOT NULL,
    topic        text COLLATE "C" NOT NULL,
    noted_at     timestamptz NOT NULL,
    PRIMARY KEY (schedule_id, scheduled_at)
);
CREATE INDEX punctual_missed_fires_noted_at ON punctual_missed_fires (noted_at, schedule_id);

CREATE TABLE punctual_calendars (
    name       text COLLATE "C" PRIMARY KEY,
    definition text NOT NULL
);

CREATE TABLE punctual_topics (
    name       text COLLATE "C" PRIMARY KEY,
    definition text NOT NULL
);
