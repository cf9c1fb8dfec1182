-- Notes how far jobs have come.
UPDATE punctual_hand_overs SET progress = said.value ->> 1
FROM json_each(?3) AS said
WHERE prefix = ?1 AND queue = ?2 AND job_id = said.value ->> 0
