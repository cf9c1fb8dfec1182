-- Which of these clientRequestIds were used before.
SELECT client_request_id FROM punctual_client_requests WHERE client_request_id IN (SELECT value FROM json_each(?1))
