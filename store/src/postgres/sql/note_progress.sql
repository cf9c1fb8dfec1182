-- Notes how far jobs have come.
UPDATE punctual_hand_overs AS o SET progress = said.progress
FROM UNNEST($3::text[], $4::text[]) AS said (job_id, progress)
WHERE o.prefix = $1 AND o.queue = $2 AND o.job_id = said.job_id
