-- Takes a leadership that is free or has expired, or renews one's own; one that somebody else holds stays as it is.
INSERT INTO punctual_leaderships AS l (name, owner, epoch, expires_at)
VALUES (?1, ?2, 1, ?4)
ON CONFLICT (name) DO UPDATE
SET owner = excluded.owner, epoch = l.epoch + (l.owner <> excluded.owner), expires_at = excluded.expires_at
WHERE l.owner = excluded.owner OR l.expires_at <= ?3
