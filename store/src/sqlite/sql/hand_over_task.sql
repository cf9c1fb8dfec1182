-- Lets a task that runs by this epoch run without a lease from now on. Answers its attempt, if it did.
UPDATE punctual_tasks SET lease_expires_at = NULL, lease_seconds = NULL
WHERE id = ?1 AND epoch = ?2 AND status = 'running'
RETURNING attempt
