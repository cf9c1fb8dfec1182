-- Removes fires from before $1, unless their task has not ended, and notes that such fires may be gone.
WITH gone AS (
    DELETE FROM punctual_fires AS f
    WHERE f.ctid = ANY (ARRAY(
            SELECT o.ctid FROM punctual_fires AS o
            WHERE o.fired_at < $1 AND NOT EXISTS (SELECT FROM punctual_tasks AS t WHERE t.id = o.task_id)
            LIMIT $2))
        -- Once more: a row that somebody changes in between is looked at again, in its new form.
        AND f.fired_at < $1 AND NOT EXISTS (SELECT FROM punctual_tasks AS t WHERE t.id = f.task_id)
    RETURNING 1
), noted AS (
    INSERT INTO punctual_facts AS f (name, value)
    SELECT 'fires_pruned_before', (extract(epoch FROM $1::timestamptz) * 1000000)::bigint::text
    WHERE EXISTS (SELECT FROM gone)
    ON CONFLICT (name) DO UPDATE SET value = greatest(f.value::bigint, excluded.value::bigint)::text
)
SELECT count(*) FROM gone
