-- Messages are taken by what sends them, and a lease tells one that is being sent from one that waits for its next try.

ALTER TABLE punctual_outbox ADD COLUMN lease_expires_at INTEGER;
DROP INDEX punctual_outbox_due;
CREATE INDEX punctual_outbox_due ON punctual_outbox (transport, next_attempt_at, id) WHERE status = 'pending';
