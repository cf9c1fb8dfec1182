-- Which migrations of plugins were applied, and in which form.

CREATE TABLE punctual_plugin_migrations (
    plugin     text COLLATE "C" NOT NULL,
    -- Counts a plugin's migrations from 1.
    number     bigint NOT NULL,
    name       text NOT NULL,
    checksum   text NOT NULL,
    applied_at timestamptz NOT NULL,
    PRIMARY KEY (plugin, number)
);
