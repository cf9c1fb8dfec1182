-- Takes clientRequestIds for good; answers those that were free.
INSERT INTO punctual_client_requests (client_request_id, made, id)
SELECT * FROM unnest($1::text[], $2::text[], $3::uuid[]) AS r (client_request_id, made, id)
ORDER BY r.client_request_id
ON CONFLICT DO NOTHING
RETURNING client_request_id
