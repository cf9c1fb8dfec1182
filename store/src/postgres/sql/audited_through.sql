-- Up to which moment ended tasks of fires were looked through; at first, up to now. Nobody else gets it until the transaction ends.
WITH known AS (
    SELECT value FROM punctual_facts WHERE name = 'audited_through' FOR UPDATE SKIP LOCKED
), first AS (
    INSERT INTO punctual_facts (name, value)
    SELECT 'audited_through', coalesce($1::timestamptz, statement_timestamp())::text
    WHERE NOT EXISTS (SELECT FROM punctual_facts WHERE name = 'audited_through')
    ON CONFLICT DO NOTHING
    RETURNING value
)
SELECT value::timestamptz FROM known UNION ALL SELECT value::timestamptz FROM first
