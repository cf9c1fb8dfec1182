use async_trait::async_trait;

use crate::{Arrival, Attempt, DefaultSchedule, DefaultTopic, Error, HealthCheck, Migration, Outcome, Route, Template};

/// A crate's contribution to the service: a name, the handlers of its topics, and whatever else it has.
pub trait Plugin: Send + Sync {
    /// The name by which the configuration turns this plugin on.
    fn name(&self) -> &'static str;

    /// The topics this plugin serves, each with its handler. A trailing `.*` serves all topics that begin so.
    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)>;

    /// Who wants to hear of attempts that begin, by topic: one, all that begin so (`operations.*`), or all there are (`*`).
    fn listeners(&self) -> Vec<(&'static str, Box<dyn Listener>)> {
        Vec::new()
    }

    /// Its HTTP routes, under `/api/v1/plugins/<name>`.
    fn routes(&self) -> Vec<Route> {
        Vec::new()
    }

    /// The schedules it brings: each is made once.
    fn schedules(&self) -> Vec<DefaultSchedule> {
        Vec::new()
    }

    /// What its topics' definitions say at first.
    fn topics(&self) -> Vec<DefaultTopic> {
        Vec::new()
    }

    /// The messages it sends, with gaps.
    fn templates(&self) -> Vec<Template> {
        Vec::new()
    }

    /// What it looks after by itself, each by the cause that an alert names, such as `email_log_stuck`.
    fn health_checks(&self) -> Vec<(&'static str, Box<dyn HealthCheck>)> {
        Vec::new()
    }

    /// The plugin's own tables, step by step.
    fn migrations(&self) -> Vec<Migration> {
        Vec::new()
    }
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

/// Hears of attempts that begin. An `async fn(Arrival)` that ends in a `Result<(), Error>` is a listener.
///
/// On a topic whose route is `event`, which nobody else serves, the listeners are the work: the attempt waits for them, and
/// fails if one of them does; all of them are told again then. On other routes an arrival is told beside the attempt, which
/// waits for nobody; what goes wrong is logged. There each listener hears one arrival after the other, has 30 seconds
/// for each, and one that falls far behind misses some.
#[async_trait]
pub trait Listener: Send + Sync {
    /// Hears of one.
    ///
    /// # Errors
    /// When it did not work out.
    async fn arrived(&self, arrival: Arrival) -> Result<(), Error>;
}

#[async_trait]
impl<F, W> Listener for F
where
    F: Fn(Arrival) -> W + Send + Sync,
    W: Future<Output = Result<(), Error>> + Send,
{
    async fn arrived(&self, arrival: Arrival) -> Result<(), Error> {
        self(arrival).await
    }
}
