//! The outbox: messages that are written with the work that causes them, and sent after it is committed.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::{Epoch, MessageId};
use crate::json::Json;

pub use punctual_sdk::engine::Content;

/// Where a message stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MessageStatus {
    /// Waits to be sent, or to be sent again.
    Pending,
    /// Was sent.
    Sent,
    /// Could not be sent, for good.
    Failed,
}

impl MessageStatus {
    /// Every status.
    pub const ALL: [Self; 3] = [Self::Pending, Self::Sent, Self::Failed];

    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Sent => "sent",
            Self::Failed => "failed",
        }
    }

    /// The status of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|status| status.as_str() == name)
    }
}

/// A message to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewMessage {
    /// Its id.
    pub id: MessageId,
    /// Unique for good: a second message of the same key is the first one.
    pub dedupe_key: String,
    /// What sends it, such as `smtp` or `queue`.
    pub transport: String,
    /// Whom it is for.
    pub recipient: String,
    /// What it says: a [`Content`].
    pub body: Json,
}

/// A message as the store knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Its id.
    pub id: MessageId,
    /// Unique for good.
    pub dedupe_key: String,
    /// What sends it.
    pub transport: String,
    /// Whom it is for.
    pub recipient: String,
    /// What it says.
    pub body: Json,
    /// Where it stands.
    pub status: MessageStatus,
    /// How often it was tried, since it was written or somebody retried it.
    pub attempt: u32,
    /// The fencing token of the present or last try.
    pub epoch: Epoch,
    /// When it is tried next.
    pub next_attempt_at: DateTime<Utc>,
    /// What the provider calls it, once it was sent.
    pub provider_id: Option<String>,
    /// What went wrong last.
    pub error: Option<String>,
    /// When it was written.
    pub created_at: DateTime<Utc>,
    /// When it was sent or given up.
    pub completed_at: Option<DateTime<Utc>>,
}

impl Message {
    /// What it says.
    ///
    /// # Errors
    /// When its body is of another shape.
    pub fn content(&self) -> Result<Content, serde_json::Error> {
        serde_json::from_str(self.body.as_str())
    }
}

/// How sending a message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Sending {
    /// It is out.
    Sent {
        /// What the provider calls it.
        provider_id: String,
    },
    /// It is tried again.
    Retried {
        /// What went wrong.
        error: String,
        /// How long it waits.
        after: std::time::Duration,
    },
    /// It is given up, until somebody retries it.
    Failed {
        /// What went wrong.
        error: String,
    },
}
