use std::time::Duration;

use anyhow::{Context, Result};
use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::task::Due;
use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
use tokio::sync::mpsc;

use super::{Bench, Figures, Site, Value, task, waits};
use crate::SystemClock;

/// How long before the first task is due all of them are written.
const AHEAD: Duration = Duration::from_millis(1_500);
/// How long a task may be late before something is wrong.
const PATIENCE: Duration = Duration::from_secs(60);

/// How late tasks begin that are due at random instants.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Precision {
    pub(crate) tasks: u64,
    pub(crate) span: Duration,
}

impl Precision {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        let values = bench.each_run(async |site| self.measure(site).await).await?;
        let config = format!("{} span={}s", bench.config(), self.span.as_secs());
        Ok(Figures { workload: "timer", n: self.tasks, values, unit: "ms", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let (begun, mut beginnings) = mpsc::unbounded_channel();
        let engine = site.start(Noting { begun, clock: SystemClock::new() }).await?;
        let first_at = site.store.now().await? + AHEAD;
        let span = self.span.as_micros().max(1) as u64;
        let due_at = |i| {
            let mut task = task(i);
            let random = uuid::Uuid::new_v4().as_u128() as u64;
            task.due = Due::At(first_at + Duration::from_micros(random % span));
            task
        };
        site.store.create_tasks((0..self.tasks).map(due_at).collect(), None).await?;
        engine.hints().tasks_written();
        let mut lags = Vec::new();
        site.bench.progress.begin(self.tasks);
        while (lags.len() as u64) < self.tasks {
            let next = tokio::time::timeout(PATIENCE, beginnings.recv()).await.context("a task did not begin")?;
            let (due_at, begun_at) = next.context("the engine gave up")?;
            lags.push((begun_at - due_at).to_std().unwrap_or_default());
            site.bench.progress.reached(lags.len() as u64);
        }
        engine.drain(PATIENCE).await?;
        Ok(waits(lags))
    }
}

/// Notes when each attempt was due, and when it began.
struct Noting {
    begun: mpsc::UnboundedSender<(DateTime<Utc>, DateTime<Utc>)>,
    clock: SystemClock,
}

#[async_trait]
impl Handler for Noting {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        // Nobody listens any more once all are counted.
        let _ = self.begun.send((attempt.run_at, self.clock.now()));
        Outcome::completed()
    }
}
