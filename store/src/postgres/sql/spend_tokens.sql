-- Notes what is left of rates; the caller has the topics' locks.
INSERT INTO punctual_pull_rates (topic, tokens, refilled_at)
SELECT * FROM unnest($1::text[], $2::double precision[], $3::timestamptz[])
ON CONFLICT (topic) DO UPDATE SET tokens = excluded.tokens, refilled_at = excluded.refilled_at
