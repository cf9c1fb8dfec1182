CREATE TABLE clearpath_sessions (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    name text NOT NULL,
    email text NOT NULL,
    status text NOT NULL CHECK (status IN
        ('pending', 'active', 'retrieval_due', 'mailed', 'results_pending', 'complete', 'cancelled', 'expired')),
    clearpath_order_id text UNIQUE,
    kit_serial_number text UNIQUE,
    activated_at timestamptz,
    expected_completion_date date,
    expired_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX clearpath_sessions_open ON clearpath_sessions (expected_completion_date)
    WHERE status IN ('active', 'retrieval_due', 'mailed', 'results_pending');

CREATE TABLE clearpath_results (
    id uuid PRIMARY KEY,
    test_session_id uuid NOT NULL UNIQUE,
    radon_level double precision NOT NULL,
    source text NOT NULL CHECK (source IN ('user', 'lab')),
    created_at timestamptz NOT NULL
);

CREATE TABLE clearpath_certificates (
    id uuid PRIMARY KEY,
    test_session_id uuid NOT NULL UNIQUE,
    status text NOT NULL CHECK (status IN ('valid', 'expired')),
    issued_on date NOT NULL,
    valid_until date NOT NULL,
    expired_at timestamptz,
    pdf bytea,
    pdf_needs_regeneration boolean NOT NULL,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);
CREATE INDEX clearpath_certificates_valid ON clearpath_certificates (valid_until) WHERE status = 'valid';

CREATE TABLE clearpath_contractors (
    id uuid PRIMARY KEY,
    name text NOT NULL,
    email text,
    status text NOT NULL CHECK (status IN ('active', 'inactive')),
    cnrpp_expiry_date date,
    last_cnrpp_alert_sent_at timestamptz,
    created_at timestamptz NOT NULL,
    updated_at timestamptz NOT NULL
);

CREATE TABLE clearpath_email_log (
    id uuid PRIMARY KEY,
    user_id text NOT NULL,
    test_session_id uuid,
    email_type text NOT NULL,
    recipient text NOT NULL,
    status text NOT NULL CHECK (status IN ('queued', 'sent', 'failed', 'abandoned', 'cancelled', 'duplicate')),
    scheduled_at timestamptz NOT NULL,
    sent_at timestamptz,
    provider_message_id text,
    retry_count integer NOT NULL,
    is_template_error boolean NOT NULL,
    last_error text,
    created_at timestamptz NOT NULL
);
CREATE INDEX clearpath_email_log_due ON clearpath_email_log (scheduled_at, id) WHERE status IN ('queued', 'failed');
CREATE INDEX clearpath_email_log_session ON clearpath_email_log (test_session_id);
