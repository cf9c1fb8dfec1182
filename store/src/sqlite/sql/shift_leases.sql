-- Lets leases that were taken or extended by a clock that was ?3 microseconds ahead end by that of now, ?1. No lease of ours
-- is longer than an hour.
UPDATE punctual_tasks
SET lease_expires_at = max(?1, lease_expires_at - ?3)
WHERE lease_expires_at IS NOT NULL
    AND (started_at > ?1 OR lease_expires_at > ?1 + coalesce(lease_seconds, 3600) * 1000000)
