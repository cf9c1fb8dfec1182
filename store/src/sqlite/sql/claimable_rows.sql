-- The given rows in one piece: their columns with U+001F between them, their ends marked by U+001E. Neither can stand in
-- a column. A row that travels by itself costs SQLite's thread more than everything else about it.
SELECT group_concat(
    concat_ws(char(31), rowid, hex(id), topic, run_at, created_at,
        -- A large one is read by itself: all of them together could be larger than SQLite allows.
        iif(octet_length(payload) <= 4096, payload, ''),
        -- What few tasks have; it is as the claim will leave it.
        CASE WHEN epoch = 0 AND priority = 0 AND timezone = 'UTC' AND timeout_seconds = 3600 AND metadata IS NULL
                AND client_request_id IS NULL AND dedupe_key IS NULL AND serial_key IS NULL AND retry IS NULL
                AND schedule_id IS NULL AND retry_of IS NULL AND rescheduled_from IS NULL
            THEN ''
            ELSE json_array(
                priority, attempt + 1, lost + 1, epoch + 1, timezone, timeout_seconds, snoozes, metadata,
                client_request_id, dedupe_key, serial_key, retry, error,
                iif(schedule_id IS NULL, NULL, hex(schedule_id)), scheduled_at,
                iif(retry_of IS NULL, NULL, hex(retry_of)),
                iif(rescheduled_from IS NULL, NULL, hex(rescheduled_from)))
        END),
    char(30)),
    -- The numbers of rows whose payload was too large.
    '[' || group_concat(iif(octet_length(payload) > 4096, rowid, NULL)) || ']'
FROM punctual_tasks
WHERE rowid IN (SELECT value FROM json_each(?1))
