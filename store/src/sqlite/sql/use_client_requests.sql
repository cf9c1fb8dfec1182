-- Takes clientRequestIds for good.
INSERT INTO punctual_client_requests (client_request_id, made, id)
SELECT value ->> 0, ?2, unhex(value ->> 1) FROM json_each(?1)
