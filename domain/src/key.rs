//! API keys: who may do what. The key itself is never stored.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::KeyId;
use crate::topic::TopicPattern;

/// What a key's bearer may do; each includes the ones before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Look.
    Read,
    /// Create, claim and settle.
    Submit,
    /// Everything on tasks, schedules, topics, calendars and the outbox.
    Operate,
    /// Keys and the audit log too.
    Admin,
}

impl Role {
    /// Every role, the weakest first.
    pub const ALL: [Self; 4] = [Self::Read, Self::Submit, Self::Operate, Self::Admin];

    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Submit => "submit",
            Self::Operate => "operate",
            Self::Admin => "admin",
        }
    }

    /// The role of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|role| role.as_str() == name)
    }
}

/// What is stored about an API key.
#[derive(Debug, Clone, PartialEq)]
pub struct ApiKey {
    /// Its id, safe to show.
    pub id: KeyId,
    /// For people.
    pub name: String,
    /// What its bearer may do.
    pub role: Role,
    /// The topics it is limited to; none is no limit.
    pub topics: Vec<TopicPattern>,
    /// SHA-256 of the key.
    pub hash: [u8; 32],
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was taken back.
    pub revoked_at: Option<DateTime<Utc>>,
}
