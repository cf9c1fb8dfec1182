//! Nodes: the processes that share a store.

use std::time::Duration;

use chrono::{DateTime, Utc};

use crate::id::{Epoch, NodeId};
use crate::json::Json;

/// One running process.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Made anew at every start; never the host's name.
    pub id: NodeId,
    /// The release it runs.
    pub version: String,
    /// The release of its zone data.
    pub tz_version: String,
    /// What else it says about itself, such as its host and the topics it has handlers for.
    pub about: Json,
    /// When it started.
    pub started_at: DateTime<Utc>,
    /// When it was last heard of.
    pub seen_at: DateTime<Utc>,
}

/// Who leads, until when.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Leadership {
    /// The node that leads.
    pub owner: NodeId,
    /// Grows whenever another node takes over.
    pub epoch: Epoch,
    /// When it ends unless renewed.
    pub expires_at: DateTime<Utc>,
    /// How long that is from now, by the store's clock.
    pub left: Duration,
}
