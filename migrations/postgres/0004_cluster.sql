-- What nodes know of each other, and who may talk to them.

CREATE TABLE punctual_nodes (
    id         uuid PRIMARY KEY,
    version    text NOT NULL,
    tz_version text NOT NULL,
    about      text NOT NULL,
    started_at timestamptz NOT NULL,
    seen_at    timestamptz NOT NULL
);

CREATE TABLE punctual_leaderships (
    name       text COLLATE "C" PRIMARY KEY,
    owner      uuid NOT NULL,
    epoch      bigint NOT NULL,
    expires_at timestamptz NOT NULL
);

CREATE TABLE punctual_state_cells (
    name    text COLLATE "C" PRIMARY KEY,
    value   text NOT NULL,
    version bigint NOT NULL
);

CREATE TABLE punctual_api_keys (
    id         uuid PRIMARY KEY,
    name       text NOT NULL,
    role       text COLLATE "C" NOT NULL CHECK (role IN ('read', 'submit', 'operate', 'admin')),
    -- Topic patterns as a JSON array; empty is no limit.
    topics     text NOT NULL,
    hash       bytea NOT NULL UNIQUE,
    created_at timestamptz NOT NULL,
    revoked_at timestamptz
);

-- Facts that all nodes share, such as the newest release of zone data.
CREATE TABLE punctual_facts (
    name  text COLLATE "C" PRIMARY KEY,
    value text NOT NULL
);
