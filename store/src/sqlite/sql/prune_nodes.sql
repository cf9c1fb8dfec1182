-- Removes nodes that were not heard of for long.
DELETE FROM punctual_nodes
WHERE rowid IN (SELECT rowid FROM punctual_nodes WHERE seen_at < ?1 LIMIT ?2)
