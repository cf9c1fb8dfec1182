-- Removes messages that were sent before ?1; their keys stay taken.
DELETE FROM punctual_outbox
WHERE rowid IN (
    SELECT rowid FROM punctual_outbox INDEXED BY punctual_outbox_sent
    WHERE status = 'sent' AND completed_at < ?1
    ORDER BY completed_at
    LIMIT ?2)
