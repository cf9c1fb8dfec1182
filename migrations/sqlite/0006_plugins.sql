-- Which migrations of plugins were applied, and in which form.

CREATE TABLE punctual_plugin_migrations (
    plugin     TEXT NOT NULL,
    -- Counts a plugin's migrations from 1.
    number     INTEGER NOT NULL,
    name       TEXT NOT NULL,
    checksum   TEXT NOT NULL,
    applied_at INTEGER NOT NULL,
    PRIMARY KEY (plugin, number)
) STRICT, WITHOUT ROWID;
