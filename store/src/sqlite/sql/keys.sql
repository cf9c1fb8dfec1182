-- API keys, in the columns every reader of them expects.
SELECT id, name, role, topics, hash, created_at, revoked_at FROM punctual_api_keys
