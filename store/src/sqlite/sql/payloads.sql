-- The payloads of the given rows.
SELECT rowid, payload FROM punctual_tasks WHERE rowid IN (SELECT value FROM json_each(?1))
