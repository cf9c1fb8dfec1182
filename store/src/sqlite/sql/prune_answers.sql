-- Removes answers that find_answer.sql no longer finds.
DELETE FROM punctual_answers
WHERE rowid IN (
    SELECT rowid FROM punctual_answers INDEXED BY punctual_answers_created_at
    WHERE created_at <= ?1
    ORDER BY created_at
    LIMIT ?2)
