-- Writes next instants that were computed anew, where nobody edited or fired the schedule in between.
UPDATE punctual_schedules AS s
SET next_fire_at = p.next_fire_at, tz_version = $5
FROM unnest($1::uuid[], $2::bigint[], $3::timestamptz[], $4::timestamptz[]) AS p (id, version, was, next_fire_at)
WHERE s.id = p.id AND s.version = p.version AND s.next_fire_at IS NOT DISTINCT FROM p.was
