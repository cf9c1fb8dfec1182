-- Fills the table of live tasks: $1 tasks of topic $2, due from tomorrow on. For measuring only.
INSERT INTO punctual_tasks (id, topic, run_at, first_run_at, payload, created_at)
SELECT
    -- In the order of time, as real ones are.
    (lpad(to_hex((extract(epoch FROM statement_timestamp()) * 1000)::bigint - ($1 - i) / 100), 12, '0')
        || '7' || left(md5(i::text), 3) || '8' || right(md5(i::text), 15))::uuid,
    $2, due.at, due.at, '{"filler":' || i || '}', statement_timestamp()
FROM generate_series(1, $1::bigint) AS i
CROSS JOIN LATERAL (
    SELECT statement_timestamp() + interval '1 day' + i * 37 % 864000 * interval '1 second' AS at
) AS due
