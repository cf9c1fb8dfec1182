use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Page, StoreError};
use crate::id::{KeyId, NodeId};
use crate::json::Json;
use crate::key::ApiKey;
use crate::news::News;
use crate::node::{Leadership, Node};

/// What the nodes that share a store know of each other, and who may talk to them.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// The store's present instant.
    async fn now(&self) -> Result<DateTime<Utc>, StoreError>;

    /// Whether it can be worked with, as far as is known.
    ///
    /// # Errors
    /// Why not.
    async fn check(&self) -> Result<(), StoreError>;

    /// Tells other nodes what changed. A hint: all that depends on it is how soon they look.
    async fn announce(&self, news: &News) -> Result<(), StoreError>;

    /// Waits until other nodes announce something, or may have done so while nobody listened.
    ///
    /// # Errors
    /// When they cannot be heard, now or at all; whoever waits looks for itself then.
    async fn hear(&self) -> Result<News, StoreError>;

    /// Whether other nodes can work on this store beside this one.
    fn has_other_nodes(&self) -> bool;

    /// Writes or refreshes a node; the store says when it was seen, and answers that.
    async fn heartbeat(&self, node: &Node) -> Result<DateTime<Utc>, StoreError>;

    /// Forgets a node.
    async fn remove_node(&self, id: NodeId) -> Result<(), StoreError>;

    /// Nodes heard of within `within`, the longest running first.
    async fn nodes(&self, within: Duration) -> Result<Vec<Node>, StoreError>;

    /// Takes or renews the leadership called `name` for `lease`. Answers who leads: this node only if it got or kept
    /// it. Its epoch grows whenever it changes hands.
    async fn lead(&self, name: &str, node: NodeId, lease: Duration) -> Result<Leadership, StoreError>;

    /// Gives the leadership up, if this node has it.
    async fn resign(&self, name: &str, node: NodeId) -> Result<(), StoreError>;

    /// What tells this store from others, also when somebody shares a Redis with it.
    async fn cluster_id(&self) -> Result<String, StoreError>;

    /// Notes a release of zone data, and answers the newest that any node ever noted.
    async fn note_tz_version(&self, version: &str) -> Result<String, StoreError>;

    /// The value of a state cell, with its version.
    async fn state_cell(&self, name: &str) -> Result<Option<(Json, u64)>, StoreError>;

    /// Writes a state cell if it still has `version` (0: if it is not there). Answers the new version, `None` if
    /// somebody else was first.
    async fn put_state_cell(&self, name: &str, value: &Json, version: u64) -> Result<Option<u64>, StoreError>;

    /// Writes an API key.
    async fn create_key(&self, key: &ApiKey) -> Result<(), StoreError>;

    /// The key with that hash that was not revoked.
    async fn key_by_hash(&self, hash: &[u8; 32]) -> Result<Option<ApiKey>, StoreError>;

    /// The key of that id that was not revoked.
    async fn key(&self, id: KeyId) -> Result<Option<ApiKey>, StoreError>;

    /// All keys, revoked ones too, in the order they were made.
    async fn keys(&self) -> Result<Vec<ApiKey>, StoreError>;

    /// Keys, revoked ones too, those that were made last first.
    async fn newest_keys(&self, page: Page<KeyId>) -> Result<Vec<ApiKey>, StoreError>;

    /// Whether any key was not revoked.
    async fn has_valid_key(&self) -> Result<bool, StoreError>;

    /// Revokes a key; `false` if it is unknown or was revoked before.
    async fn revoke_key(&self, id: KeyId) -> Result<bool, StoreError>;

    /// What was last noted under a name, by any node.
    async fn fact(&self, name: &str) -> Result<Option<String>, StoreError>;

    /// Notes something under a name, for all nodes.
    async fn note_fact(&self, name: &str, value: &str) -> Result<(), StoreError>;
}
