CREATE TABLE signup_sessions (
    id uuid PRIMARY KEY,
    email text NOT NULL,
    current_stage text NOT NULL CHECK (current_stage IN ('step_1', 'step_2', 'step_3', 'step_4', 'complete')),
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
