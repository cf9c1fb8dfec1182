use async_trait::async_trait;

use crate::{Attempt, Outcome};

/// A crate's contribution to the service: a name, and the handlers of its topics.
pub trait Plugin: Send + Sync {
    /// The name by which the configuration turns this plugin on.
    fn name(&self) -> &'static str;

    /// The topics this plugin serves, each with its handler.
    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)>;
}

/// Performs the attempts of one topic. An `async fn(Attempt)` that ends in an [`Outcome`], or in a `Result` with one, is a
/// handler.
///
/// Attempts run side by side, up to the topic's concurrency, and at least once: after a crash the same task is
/// handed out again with a larger epoch. Make the effect idempotent by [`Attempt::task_id`].
#[async_trait]
pub trait Handler: Send + Sync {
    /// Performs one attempt and says how it ended.
    async fn handle(&self, attempt: Attempt) -> Outcome;
}

#[async_trait]
impl<F, W> Handler for F
where
    F: Fn(Attempt) -> W + Send + Sync,
    W: Future<Output: Into<Outcome>> + Send,
{
    async fn handle(&self, attempt: Attempt) -> Outcome {
        let ended = self(attempt).await;
        ended.into()
    }
}
