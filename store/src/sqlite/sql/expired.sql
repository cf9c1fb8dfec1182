-- Running tasks whose lease ran out, the longest ago first, with their losses so far, the present one among them.
SELECT id, epoch, lost
FROM punctual_tasks INDEXED BY punctual_tasks_lease
WHERE lease_expires_at <= ?1 AND lease_expires_at IS NOT NULL AND status = 'running'
ORDER BY lease_expires_at
LIMIT ?2
