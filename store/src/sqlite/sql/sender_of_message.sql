-- Until when somebody is sending the message of this key, or what the provider called it once it was sent.
SELECT o.lease_expires_at, k.provider_id
FROM punctual_outbox_keys AS k LEFT JOIN punctual_outbox AS o ON o.id = k.message_id AND o.status <> 'sent'
WHERE k.dedupe_key = ?1
