use async_trait::async_trait;

use super::StoreError;
use crate::topic::{TopicDefinition, TopicPattern};

/// Definitions of topics.
#[async_trait]
pub trait Topics: Send + Sync {
    /// Writes a definition; `true` if it is new.
    async fn put_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError>;

    /// Writes a definition unless there is one of that name; `true` if it was written.
    async fn add_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError>;

    /// All definitions, by name. Which one applies to a topic is `TopicDefinition::for_topic`.
    async fn topics(&self) -> Result<Vec<TopicDefinition>, StoreError>;

    /// Deletes a definition; `false` if unknown.
    async fn delete_topic(&self, name: &TopicPattern) -> Result<bool, StoreError>;
}
