use async_trait::async_trait;

use super::{Page, Span, StoreError};
use crate::audit::AuditEntry;
use crate::id::{AuditId, KeyId};

/// The audit log.
#[async_trait]
pub trait Audit: Send + Sync {
    /// Writes entries.
    async fn record(&self, entries: Vec<AuditEntry>) -> Result<(), StoreError>;

    /// Entries that match, newest first.
    async fn audit(&self, filter: &AuditFilter, page: Page<AuditId>) -> Result<Vec<AuditEntry>, StoreError>;
}

/// Which entries are meant: all that match everything given.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct AuditFilter {
    /// Made with this key.
    pub key_id: Option<KeyId>,
    /// By this name.
    pub actor: Option<String>,
    /// What was done, word for word.
    pub action: Option<String>,
    /// To what.
    pub target: Option<String>,
    /// Made in this stretch.
    pub at: Span,
}
