CREATE TABLE signup_sessions (
    id BLOB PRIMARY KEY,
    email TEXT NOT NULL,
    current_stage TEXT NOT NULL CHECK (current_stage IN ('step_1', 'step_2', 'step_3', 'step_4', 'complete')),
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
