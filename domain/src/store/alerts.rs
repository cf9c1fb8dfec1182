use std::time::Duration;

use async_trait::async_trait;

use super::StoreError;
use crate::alert::{Cause, Signs};
use crate::id::NodeId;
use crate::outbox::NewMessage;

/// What somebody has to know, and who was told when.
#[async_trait]
pub trait Alerts: Send + Sync {
    /// What was seen lately, as [`Signs`] says. It costs next to nothing as long as all is well: every node asks, day and
    /// night.
    async fn signs(&self) -> Result<Signs, StoreError>;

    /// Notes that somebody is told of `cause`, and posts the messages that do so, in one transaction; `false` if that
    /// was done within the last `quiet`, by whichever node, and nothing was written.
    async fn raise(&self, cause: Cause, quiet: Duration, messages: Vec<NewMessage>) -> Result<bool, StoreError>;

    /// Notes that a node became the leader.
    async fn note_leader(&self, node: NodeId) -> Result<(), StoreError>;
}
