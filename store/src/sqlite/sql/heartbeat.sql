-- Writes or refreshes a node; the store's clock says when it was seen.
INSERT INTO punctual_nodes (id, version, tz_version, about, started_at, seen_at)
VALUES (?1, ?2, ?3, ?4, ?5, ?6)
ON CONFLICT (id) DO UPDATE
SET version = excluded.version, tz_version = excluded.tz_version, about = excluded.about,
    started_at = excluded.started_at, seen_at = excluded.seen_at
