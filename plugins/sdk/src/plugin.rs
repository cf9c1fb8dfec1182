use async_trait::async_trait;

use crate::{Attempt, Outcome};

/// A crate's contribution to the service: a name, and the handlers of its topics.
pub trait Plugin: Send + Sync {
    /// The name by which the configuration turns this plugin on.
    fn name(&self) -> &'static str;

    /// The topics this plugin serves, each with its handler.
    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)>;
}

/// Performs the attempts of one topic.
///
/// Attempts run side by side, up to the topic's concurrency, and at least once: after a crash the same task is
/// handed out again with a larger epoch. Make the effect idempotent by [`Attempt::task_id`].
#[async_trait]
pub trait Handler: Send + Sync {
    /// Performs one attempt and says how it ended.
    async fn handle(&self, attempt: Attempt) -> Outcome;
}
