//! What `punctual bench` measures: this build's engine on a scratch database.
//!
//! Every workload runs the same actors on the same store as `serve`: real claims, leases, fences and history rows. Each
//! run makes its scratch place anew and removes it, also when it fails; only rows of millions that do nothing but be there
//! are written once, and stay for all runs.

mod burst;
mod drain;
mod enqueue;
mod failover;
mod latency;
mod precision;
mod progress;
mod recurring;
mod schedules;
mod tick;

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use punctual_actors::{Deps, Handlers, Running, Settings};
use punctual_domain::coordination::Alone;
use punctual_domain::delivery::Transports;
use punctual_domain::id::NodeId;
use punctual_domain::json::Json;
use punctual_domain::store::Store;
use punctual_domain::task::NewTask;
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Route, Topic, TopicDefinition};
use punctual_sdk::Handler;
use punctual_store::{Options, Scratch};
use serde::{Serialize, Serializer};

use crate::SystemClock;
use crate::config::Secret;
use crate::telemetry::Exporter;

pub(crate) use burst::Burst;
pub(crate) use drain::Drain;
pub(crate) use enqueue::Enqueue;
pub(crate) use failover::{End, Failover};
pub(crate) use latency::Latency;
pub(crate) use precision::Precision;
pub(crate) use progress::Progress;
pub(crate) use recurring::Recurring;
pub(crate) use tick::Tick;

/// The topic that is measured.
const TOPIC: &str = "bench";

/// What the runs of a workload measured.
#[derive(Debug, Clone)]
pub(crate) struct Figures {
    pub(crate) workload: &'static str,
    pub(crate) n: u64,
    /// One of each run; there is at least one.
    pub(crate) values: Vec<Value>,
    pub(crate) unit: &'static str,
    pub(crate) config: String,
}

/// A rate, or several numbers by their names, such as percentiles of waits.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Value {
    Rate(f64),
    Parts(Vec<(&'static str, f64)>),
}

impl Value {
    /// All numbers by their names.
    pub(crate) fn parts(&self) -> Vec<(&'static str, f64)> {
        match self {
            Self::Rate(rate) => vec![("rate", *rate)],
            Self::Parts(parts) => parts.clone(),
        }
    }
}

impl Serialize for Value {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Rate(rate) => serializer.serialize_f64(*rate),
            Self::Parts(parts) => serializer.collect_map(parts.iter().copied()),
        }
    }
}

/// Where the measured engine has its database, and how wide it runs.
#[derive(Debug, Clone)]
pub(crate) struct Bench {
    pub(crate) database_url: String,
    /// For workloads of several nodes.
    pub(crate) redis_url: Option<Secret>,
    pub(crate) max_tasks_per_poll: u32,
    pub(crate) concurrency: u32,
    /// How often a workload is measured.
    pub(crate) runs: u32,
    pub(crate) progress: Progress,
}

impl Bench {
    /// Measures as often as asked for, each time on a scratch database of its own.
    async fn each_run(&self, measure: impl AsyncFn(&Site<'_>) -> Result<Value>) -> Result<Vec<Value>> {
        self.each_scratch(async |scratch| self.at(scratch, async |site| measure(site).await).await).await
    }

    /// The same for what opens the scratch database by itself.
    async fn each_scratch(&self, measure: impl AsyncFn(&Scratch) -> Result<Value>) -> Result<Vec<Value>> {
        let mut values = Vec::new();
        for run in 1..=self.runs {
            self.progress.run(run, self.runs);
            values.push(self.on_scratch(async |scratch| measure(scratch).await).await?);
        }
        Ok(values)
    }

    /// Runs `measure` on a scratch database, and removes that whatever comes of it.
    async fn on_scratch<T>(&self, measure: impl AsyncFnOnce(&Scratch) -> Result<T>) -> Result<T> {
        // What is measured counts and measures itself as the service does.
        let _upkeep = Exporter::of_process().keep_up();
        let scratch = Scratch::create(&self.database_url).await?;
        let measured = tokio::select! {
            measured = measure(&scratch) => measured,
            _ = tokio::signal::ctrl_c() => Err(anyhow::anyhow!("interrupted")),
        };
        let removed = scratch.remove().await.context("the scratch database was not removed");
        measured.and_then(|measured| removed.map(|()| measured))
    }

    /// Opens a scratch database in which the topic is defined, and closes it after.
    async fn at<T>(&self, scratch: &Scratch, measure: impl AsyncFnOnce(&Site<'_>) -> Result<T>) -> Result<T> {
        let store = punctual_store::connect(scratch.url(), Options::default()).await?;
        let mut topic = TopicDefinition::new(TOPIC.parse()?, Route::Handler);
        topic.concurrency = self.concurrency;
        store.put_topic(&topic).await?;
        let measured = measure(&Site { bench: self, scratch, store: Arc::clone(&store) }).await;
        store.close().await.context("the scratch database was not closed")?;
        measured
    }

    fn database(&self) -> &'static str {
        if self.database_url.starts_with("sqlite:") { "sqlite" } else { "postgres" }
    }

    fn config(&self) -> String {
        let Self { max_tasks_per_poll, concurrency, .. } = self;
        format!("{} batch={max_tasks_per_poll} concurrency={concurrency} (history)", self.database())
    }
}

/// A scratch database, ready to be measured on.
struct Site<'b> {
    bench: &'b Bench,
    scratch: &'b Scratch,
    store: Arc<dyn Store>,
}

impl Site<'_> {
    /// Starts the engine as `serve` would.
    async fn start(&self, handler: impl Handler + 'static) -> Result<Running> {
        let deps = Deps {
            store: self.store.clone(),
            clock: Arc::new(SystemClock::new()),
            zones: ZoneDatabase::current(None)?,
            coordination: Arc::new(Alone),
            node: NodeId::generate(),
            handlers: Handlers::default().with(TOPIC, handler),
            transports: Transports::default(),
            alerts: Vec::new(),
            settings: Settings { max_tasks_per_poll: self.bench.max_tasks_per_poll, ..Settings::default() },
            happened: Arc::default(),
        };
        Ok(punctual_actors::start(deps).await?)
    }
}

/// A payload like those the peers are measured with.
#[derive(Serialize)]
struct Payload {
    kind: &'static str,
    seq: u64,
    user: String,
    note: &'static str,
}

impl Payload {
    fn new(i: u64) -> Self {
        let user = format!("user-{:08}", i % 100_000);
        Self { kind: "noop", seq: i, user, note: "abcdefghijklmnopqrstuvwxyz0123456789abcdef" }
    }
}

/// A task with such a payload.
fn task(i: u64) -> NewTask {
    let mut task = NewTask::new(Topic::from_stored(TOPIC));
    task.payload = Json::from_stored(serde_json::to_string(&Payload::new(i)).expect("text and a number"));
    task
}

/// The number of a task made by [`task`].
fn number_of(attempt: &punctual_sdk::Attempt) -> Option<usize> {
    #[derive(serde::Deserialize)]
    struct Numbered {
        seq: usize,
    }
    attempt.payload_as::<Numbered>().ok().map(|payload| payload.seq)
}

/// Waits in milliseconds, as their percentiles.
fn waits(mut waits: Vec<Duration>) -> Value {
    waits.sort_unstable();
    let at = |part: f64| {
        let place = (waits.len() as f64 * part).ceil() as usize;
        let wait = waits.get(place.clamp(1, waits.len().max(1)) - 1).copied().unwrap_or_default();
        in_ms(wait)
    };
    Value::Parts(vec![("p50", at(0.50)), ("p95", at(0.95)), ("p99", at(0.99)), ("max", at(1.0))])
}

/// In milliseconds, to a hundredth.
fn in_ms(wait: Duration) -> f64 {
    (wait.as_secs_f64() * 100_000.0).round() / 100.0
}

fn rate(n: u64, took: Duration) -> Value {
    Value::Rate((n as f64 / took.as_secs_f64() * 10.0).round() / 10.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_the_nearest_rank() {
        let all = (1..=100).rev().map(Duration::from_millis).collect();
        assert_eq!(waits(all).parts(), [("p50", 50.0), ("p95", 95.0), ("p99", 99.0), ("max", 100.0)]);
        let one = waits(vec![Duration::from_millis(7)]);
        assert_eq!(one.parts(), [("p50", 7.0), ("p95", 7.0), ("p99", 7.0), ("max", 7.0)]);
        assert_eq!(serde_json::to_string(&one).unwrap(), r#"{"p50":7.0,"p95":7.0,"p99":7.0,"max":7.0}"#);
        assert_eq!(serde_json::to_string(&Value::Rate(1.5)).unwrap(), "1.5");
    }
}
