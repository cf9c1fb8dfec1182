//! The audit log: who changed what, when, and how that went.

use chrono::{DateTime, Utc};

use crate::id::{AuditId, KeyId};

/// One change, or one that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AuditEntry {
    /// Its id; later ones sort after earlier ones.
    pub id: AuditId,
    /// When it was made.
    pub at: DateTime<Utc>,
    /// The API key that was used, if one was needed.
    pub key_id: Option<KeyId>,
    /// The key's name at that time, or `local`.
    pub actor: String,
    /// What was done, such as `POST /api/v1/tasks/{id}/cancel`.
    pub action: String,
    /// To what, such as an id or a name; empty where the action says it all.
    pub target: String,
    /// The status of the answer.
    pub status: u16,
    /// The request's id, as in the log.
    pub request_id: String,
}

/// Who it is where no API key is needed.
pub const LOCAL: &str = "local";
