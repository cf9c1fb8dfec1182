-- Writes fires; an instant that has one of this kind already is left out. Answers those written.
INSERT INTO punctual_fires (
    id, schedule_id, kind, scheduled_at, fired_at, reason, until_at, count, tz_version, task_id
)
SELECT f.id, f.schedule_id, $2, f.scheduled_at, $1, f.reason, f.until_at, f.count, f.tz_version, f.task_id
FROM unnest(
    $3::uuid[], $4::uuid[], $5::timestamptz[], $6::text[], $7::timestamptz[], $8::bigint[], $9::text[], $10::uuid[]
) AS f (id, schedule_id, scheduled_at, reason, until_at, count, tz_version, task_id)
ON CONFLICT (schedule_id, scheduled_at, kind) DO NOTHING
RETURNING id
