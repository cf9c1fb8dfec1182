-- Removes changes of the leader before ?1.
DELETE FROM punctual_leader_changes
WHERE rowid IN (
    SELECT rowid FROM punctual_leader_changes INDEXED BY punctual_leader_changes_changed_at
    WHERE changed_at < ?1
    ORDER BY changed_at
    LIMIT ?2)
