-- Removes missed fires noted before ?1.
DELETE FROM punctual_missed_fires
WHERE rowid IN (
    SELECT rowid FROM punctual_missed_fires INDEXED BY punctual_missed_fires_noted_at
    WHERE noted_at < ?1
    ORDER BY noted_at
    LIMIT ?2)
