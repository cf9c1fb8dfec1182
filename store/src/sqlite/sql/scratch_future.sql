-- Fills the table of live tasks: ?1 tasks of topic ?2, due from tomorrow on. For measuring only.
WITH RECURSIVE numbers (i) AS (
    SELECT 1 UNION ALL SELECT i + 1 FROM numbers WHERE i < ?1
), due (i, at) AS (
    SELECT i, (unixepoch() + 86400 + i * 37 % 864000) * 1000000 FROM numbers
)
INSERT INTO punctual_tasks (id, topic, run_at, first_run_at, payload, created_at)
SELECT
    -- In the order of time, as real ones are.
    unhex(printf('%012x7%03x8%015x', unixepoch() * 1000 - (?1 - i) / 100, random() & 0xfff, random() & 0xfffffffffffffff)),
    ?2, at, at, '{"filler":' || i || '}', unixepoch() * 1000000 FROM due
