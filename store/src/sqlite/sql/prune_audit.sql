-- Removes old entries of the audit log.
DELETE FROM punctual_audit
WHERE rowid IN (
    SELECT rowid FROM punctual_audit INDEXED BY punctual_audit_at WHERE at < ?1 ORDER BY at LIMIT ?2)
