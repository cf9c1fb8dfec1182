-- Notes that fires from before ?1 may be gone; what was noted never goes back.
INSERT INTO punctual_facts (name, value) VALUES ('fires_pruned_before', CAST(?1 AS TEXT))
ON CONFLICT (name) DO UPDATE
SET value = CAST(max(CAST(value AS INTEGER), CAST(excluded.value AS INTEGER)) AS TEXT)
