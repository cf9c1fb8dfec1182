-- Running tasks (with a lease, or handed over without one), messages that wait, enabled schedules, and the instant of
-- the most overdue schedule.
SELECT
    (SELECT count(*) FROM punctual_tasks INDEXED BY punctual_tasks_lease
     WHERE lease_expires_at IS NOT NULL AND status = 'running')
    + (SELECT count(*) FROM punctual_hand_overs AS o
       CROSS JOIN punctual_tasks AS t ON t.id = o.task_id AND t.status = 'running' AND t.lease_expires_at IS NULL),
    (SELECT count(*) FROM punctual_outbox INDEXED BY punctual_outbox_due WHERE status = 'pending'),
    (SELECT count(*) FROM punctual_schedules WHERE enabled),
    (SELECT next_fire_at FROM punctual_schedules INDEXED BY punctual_schedules_next
     WHERE next_fire_at IS NOT NULL AND next_fire_at <= ?1 AND enabled ORDER BY next_fire_at LIMIT 1)
