-- Waits until nobody else claims from these topics by the API; until the transaction ends, nobody else will. In the order
-- of the locks' numbers, so that nobody deadlocks.
SELECT pg_advisory_xact_lock(number)
FROM (
    SELECT DISTINCT hashtextextended('punctual pull ' || topic, 0) AS number FROM unnest($1::text[]) AS t (topic)
    ORDER BY number
) AS locks
