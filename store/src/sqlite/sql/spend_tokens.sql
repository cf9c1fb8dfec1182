-- Notes what is left of a rate.
INSERT INTO punctual_pull_rates (topic, tokens, refilled_at) VALUES (?1, ?2, ?3)
ON CONFLICT (topic) DO UPDATE SET tokens = excluded.tokens, refilled_at = excluded.refilled_at
