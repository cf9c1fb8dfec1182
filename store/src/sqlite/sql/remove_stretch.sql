-- remove_completed.sql where the rows stand one after the other, from ?5 to ?6: all ?4 of them were just copied, so
-- nobody else's row is among them. Read and removed in one go, which SQLite does for no list.
DELETE FROM punctual_tasks
WHERE rowid BETWEEN ?5 AND ?6 AND changes() = ?4
