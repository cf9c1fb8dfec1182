-- When the next lease runs out.
SELECT min(lease_expires_at) FROM punctual_tasks WHERE lease_expires_at IS NOT NULL
