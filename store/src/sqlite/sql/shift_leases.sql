-- Lets leases that were taken by a clock that was ?3 microseconds ahead end by that of now, ?1.
UPDATE punctual_tasks
SET lease_expires_at = max(?1, lease_expires_at - ?3), started_at = min(?1, started_at)
WHERE lease_expires_at IS NOT NULL AND started_at > ?1
