use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use anyhow::{Result, bail, ensure};
use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
use tokio::sync::Notify;
use tokio::time::Instant;

use super::{Bench, Figures, Site, TOPIC, Value, rate, task};

/// How many tasks are written at a time before the clock runs.
const LOAD: u64 = 5_000;
/// How long the engine may take to write its last outcomes.
const DRAIN: Duration = Duration::from_secs(60);

/// How fast due tasks that do nothing are claimed, run and settled, from the engine's start until the store has ended
/// them all.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Drain {
    pub(crate) tasks: u64,
    /// Tasks of the same topic that are due much later.
    pub(crate) future: u64,
    /// Tasks that have ended before.
    pub(crate) history: u64,
}

impl Drain {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        let values = if self.future + self.history > 0 {
            bench.on_scratch(async |scratch| bench.at(scratch, async |site| self.beside(site).await).await).await?
        } else {
            bench.each_run(async |site| self.measure(site, 0).await).await?
        };
        let mut config = bench.config();
        for (name, rows) in [("future", self.future), ("history", self.history)] {
            if rows > 0 {
                config += &format!(" {name}={rows}");
            }
        }
        Ok(Figures { workload: "drain", n: self.tasks, values, unit: "tasks/s", config })
    }

    /// All runs beside the same tasks of the future and the past: millions of them take longer to write than any run.
    async fn beside(self, site: &Site<'_>) -> Result<Vec<Value>> {
        let Bench { runs, progress, .. } = site.bench;
        progress.preparing();
        if self.future > 0 {
            site.scratch.fill_future(TOPIC, self.future).await?;
        }
        if self.history > 0 {
            site.scratch.fill_history(TOPIC, self.history).await?;
        }
        let mut values = Vec::new();
        for run in 0..*runs {
            progress.run(run + 1, *runs);
            values.push(self.measure(site, self.history + u64::from(run) * self.tasks).await?);
        }
        Ok(values)
    }

    async fn measure(self, site: &Site<'_>, ended_before: u64) -> Result<Value> {
        site.bench.progress.preparing();
        for first in (0..self.tasks).step_by(LOAD as usize) {
            let batch = (first..self.tasks.min(first + LOAD)).map(task).collect();
            site.store.create_tasks(batch, None).await?;
        }
        site.scratch.come_to_rest().await?;

        let count = Arc::new(Count { left: AtomicU64::new(self.tasks), done: Notify::new() });
        site.bench.progress.begin(self.tasks);
        let started_at = Instant::now();
        let mut engine = site.start(Counting(count.clone())).await?;
        tokio::select! {
            () = count.done.notified() => {}
            () = site.bench.progress.follow(|| self.tasks - count.left.load(Ordering::Relaxed)) => {}
            () = engine.gave_up() => bail!("the engine gave up"),
        }
        // Ends once every outcome is written.
        engine.drain(DRAIN).await?;
        let took = started_at.elapsed();

        let ended = site.scratch.ended(TOPIC).await?;
        let expected = ended_before + self.tasks;
        ensure!(ended == expected, "{ended} tasks ended, not {expected}");
        Ok(rate(self.tasks, took))
    }
}

struct Count {
    left: AtomicU64,
    done: Notify,
}

struct Counting(Arc<Count>);

#[async_trait]
impl Handler for Counting {
    async fn handle(&self, _: Attempt) -> Outcome {
        if self.0.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            self.0.done.notify_one();
        }
        Outcome::completed()
    }
}
