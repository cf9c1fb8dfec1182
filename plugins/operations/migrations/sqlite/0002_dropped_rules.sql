-- Of a rule that was dropped because its instant was past: whether it was active until then. Null for all others.
ALTER TABLE operations_notification_rules ADD COLUMN active_when_dropped INTEGER;
