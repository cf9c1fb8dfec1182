-- When the next lease runs out.
SELECT min(lease_expires_at) FROM punctual_tasks INDEXED BY punctual_tasks_lease WHERE lease_expires_at IS NOT NULL
