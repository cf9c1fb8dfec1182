-- A schedule's ledger in the order of instants, from its own last row before $2: a run may reach into what is asked for.
SELECT kind, scheduled_at, fired_at, reason, until_at, count, tz_version
FROM punctual_fires
WHERE schedule_id = $1 AND scheduled_at < $3 AND (scheduled_at, kind) > ($4, $5)
    AND scheduled_at >= coalesce(
        (SELECT scheduled_at FROM punctual_fires
         WHERE schedule_id = $1 AND scheduled_at < $2 AND kind = 'schedule'
         ORDER BY scheduled_at DESC LIMIT 1),
        $2)
ORDER BY scheduled_at, kind
LIMIT $6
