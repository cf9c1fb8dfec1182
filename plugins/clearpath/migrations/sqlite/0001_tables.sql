CREATE TABLE clearpath_sessions (
    id BLOB PRIMARY KEY,
    user_id TEXT NOT NULL,
    name TEXT NOT NULL,
    email TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN
        ('pending', 'active', 'retrieval_due', 'mailed', 'results_pending', 'complete', 'cancelled', 'expired')),
    clearpath_order_id TEXT UNIQUE,
    kit_serial_number TEXT UNIQUE,
    activated_at TEXT,
    expected_completion_date TEXT,
    expired_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
CREATE INDEX clearpath_sessions_open ON clearpath_sessions (expected_completion_date)
    WHERE status IN ('active', 'retrieval_due', 'mailed', 'results_pending');

CREATE TABLE clearpath_results (
    id BLOB PRIMARY KEY,
    test_session_id BLOB NOT NULL UNIQUE,
    radon_level REAL NOT NULL,
    source TEXT NOT NULL CHECK (source IN ('user', 'lab')),
    created_at TEXT NOT NULL
) STRICT;

CREATE TABLE clearpath_certificates (
    id BLOB PRIMARY KEY,
    test_session_id BLOB NOT NULL UNIQUE,
    status TEXT NOT NULL CHECK (status IN ('valid', 'expired')),
    issued_on TEXT NOT NULL,
    valid_until TEXT NOT NULL,
    expired_at TEXT,
    pdf BLOB,
    pdf_needs_regeneration INTEGER NOT NULL,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;
CREATE INDEX clearpath_certificates_valid ON clearpath_certificates (valid_until) WHERE status = 'valid';

CREATE TABLE clearpath_contractors (
    id BLOB PRIMARY KEY,
    name TEXT NOT NULL,
    email TEXT,
    status TEXT NOT NULL CHECK (status IN ('active', 'inactive')),
    cnrpp_expiry_date TEXT,
    last_cnrpp_alert_sent_at TEXT,
    created_at TEXT NOT NULL,
    updated_at TEXT NOT NULL
) STRICT;

CREATE TABLE clearpath_email_log (
    id BLOB PRIMARY KEY,
    user_id TEXT NOT NULL,
    test_session_id BLOB,
    email_type TEXT NOT NULL,
    recipient TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('queued', 'sent', 'failed', 'abandoned', 'cancelled', 'duplicate')),
    scheduled_at TEXT NOT NULL,
    sent_at TEXT,
    provider_message_id TEXT,
    retry_count INTEGER NOT NULL,
    is_template_error INTEGER NOT NULL,
    last_error TEXT,
    created_at TEXT NOT NULL
) STRICT;
CREATE INDEX clearpath_email_log_due ON clearpath_email_log (scheduled_at, id) WHERE status IN ('queued', 'failed');
CREATE INDEX clearpath_email_log_session ON clearpath_email_log (test_session_id);
