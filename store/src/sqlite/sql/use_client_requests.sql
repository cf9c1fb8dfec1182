-- Takes clientRequestIds for good.
WITH given (row) AS MATERIALIZED (
    SELECT value FROM jsonb_each(?1)
)
INSERT INTO punctual_client_requests (client_request_id, made, id)
SELECT row ->> 0, ?2, unhex(row ->> 1) FROM given
