use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::StoreError;
use crate::topic::{TopicDefinition, TopicPattern};

/// Definitions of topics.
#[async_trait]
pub trait Topics: Send + Sync {
    /// Writes a definition; `true` if it is new.
    ///
    /// # Errors
    /// `HandlerRegistered`, if a node ever had a handler for it and the route is another one.
    async fn put_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError>;

    /// Writes a definition unless there is one of that name; `true` if it was written.
    async fn add_topic(&self, definition: &TopicDefinition) -> Result<bool, StoreError>;

    /// Notes that a node has a handler for these topics: from now on their route is `handler`. What else is said of them
    /// stays.
    async fn register_topic(&self, name: &TopicPattern) -> Result<(), StoreError>;

    /// Pauses or resumes the topics of a definition; answers it as it is then, `None` if unknown.
    async fn pause_topic(&self, name: &TopicPattern, paused: bool) -> Result<Option<TopicDefinition>, StoreError>;

    /// All definitions, by name. Which one applies to a topic is `TopicDefinition::for_topic`.
    async fn topics(&self) -> Result<Vec<TopicDefinition>, StoreError>;

    /// What the topics have to do at the moment, by name; those that have nothing to do are left out.
    async fn loads(&self) -> Result<Vec<Load>, StoreError>;

    /// Deletes a definition; `false` if unknown.
    ///
    /// # Errors
    /// `HandlerRegistered`, if a node ever had a handler for it.
    async fn delete_topic(&self, name: &TopicPattern) -> Result<bool, StoreError>;
}

/// What a topic has to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Load {
    /// The topic.
    pub topic: String,
    /// How many of its tasks are due and unclaimed.
    pub due: u64,
    /// Since when the oldest of them is.
    pub due_since: Option<DateTime<Utc>>,
    /// How many of its tasks run.
    pub running: u64,
}
