-- Tasks of fires that ended after a moment, up to a little ago, and the instants of those whose fire names other tasks only.
WITH looked_at AS (
    SELECT id, schedule_id, scheduled_at, retry_of, rescheduled_from, completed_at
    FROM punctual_task_history
    WHERE schedule_id IS NOT NULL AND completed_at > $1
        AND completed_at <= coalesce($2::timestamptz, statement_timestamp()) - interval '10 seconds'
    ORDER BY completed_at
    FETCH FIRST $3 ROWS WITH TIES
), doubles AS (
    SELECT DISTINCT t.schedule_id, t.scheduled_at
    FROM looked_at AS t
    WHERE t.retry_of IS NULL AND t.rescheduled_from IS NULL
        AND EXISTS (
            SELECT FROM punctual_fires AS f WHERE f.schedule_id = t.schedule_id AND f.scheduled_at = t.scheduled_at)
        AND NOT EXISTS (
            SELECT FROM punctual_fires AS f
            WHERE f.schedule_id = t.schedule_id AND f.scheduled_at = t.scheduled_at AND f.task_id = t.id)
)
SELECT
    (SELECT count(*) FROM looked_at), (SELECT max(completed_at) FROM looked_at),
    (SELECT coalesce(array_agg(schedule_id ORDER BY scheduled_at, schedule_id), '{}') FROM doubles),
    (SELECT coalesce(array_agg(scheduled_at ORDER BY scheduled_at, schedule_id), '{}') FROM doubles)
