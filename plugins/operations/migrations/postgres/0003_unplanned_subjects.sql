-- The kinds of a subject's dates whose rules could not all be written, with blanks in between: they are planned anew.
ALTER TABLE operations_subjects ADD COLUMN unplanned text;
CREATE INDEX operations_subjects_unplanned ON operations_subjects (id) WHERE unplanned IS NOT NULL;
