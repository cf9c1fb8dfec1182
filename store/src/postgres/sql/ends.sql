-- How the last tasks ended that ended within $2 microseconds, at most $3 of them: those of schedules, then all others.
WITH lately AS (
    SELECT status, schedule_id IS NOT NULL AS is_of_schedule
    FROM punctual_task_history
    WHERE completed_at > coalesce($1::timestamptz, statement_timestamp()) - $2::bigint * interval '1 microsecond'
    ORDER BY completed_at DESC
    LIMIT $3
)
SELECT count(*) FILTER (WHERE status = 'completed' AND is_of_schedule),
    count(*) FILTER (WHERE status = 'failed' AND is_of_schedule),
    count(*) FILTER (WHERE status = 'completed' AND NOT is_of_schedule),
    count(*) FILTER (WHERE status = 'failed' AND NOT is_of_schedule)
FROM lately
