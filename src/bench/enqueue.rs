use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use punctual_store::Scratch;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Bench, Figures, Payload, TOPIC, Value, rate};
use crate::library::{NewTask, Punctual};

/// How fast a program writes tasks through the library, each call answered after its commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enqueue {
    pub(crate) tasks: u64,
    /// How many callers write at a time.
    pub(crate) producers: u64,
    /// How many tasks each call writes.
    pub(crate) per_call: u64,
}

impl Enqueue {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        let values = bench.each_scratch(async |scratch| self.measure(bench, scratch).await).await?;
        let workload = if self.per_call > 1 { "enqueue-bulk" } else { "enqueue-single" };
        let config = format!("{} producers={} per_call={}", bench.database(), self.producers, self.per_call);
        Ok(Figures { workload, n: self.tasks, values, unit: "tasks/s", config })
    }

    async fn measure(self, bench: &Bench, scratch: &Scratch) -> Result<Value> {
        // The topic is defined by then; a SQLite file is opened by one at a time.
        bench.at(scratch, async |_| Ok(())).await?;
        let punctual = Punctual::builder().database(scratch.url()).connect().await?;
        scratch.come_to_rest().await?;
        // The connection is open, its statement known and the table begun, as in a program at work; others are measured so too.
        self.call(&punctual, 0).await?;
        let next = Arc::new(AtomicU64::new(0));
        let mut producers = JoinSet::new();
        bench.progress.begin(self.tasks);
        let started_at = Instant::now();
        for _ in 0..self.producers {
            let (punctual, next) = (punctual.clone(), next.clone());
            producers.spawn(async move {
                loop {
                    let first = next.fetch_add(self.per_call, Ordering::Relaxed);
                    if first >= self.tasks {
                        return anyhow::Ok(());
                    }
                    self.call(&punctual, first).await?;
                }
            });
        }
        let all = async {
            while let Some(ended) = producers.join_next().await {
                ended??;
            }
            anyhow::Ok(())
        };
        tokio::select! {
            all = all => all?,
            () = bench.progress.follow(|| next.load(Ordering::Relaxed).min(self.tasks)) => {}
        }
        let value = rate(self.tasks, started_at.elapsed());
        punctual.stop().await?;
        Ok(value)
    }

    /// Writes the tasks of one call.
    async fn call(self, punctual: &Punctual, first: u64) -> Result<()> {
        match self.per_call {
            1 => drop(punctual.enqueue(task(first)).await?),
            _ => drop(punctual.enqueue_many((first..self.tasks.min(first + self.per_call)).map(task)).await?),
        }
        Ok(())
    }
}

fn task(i: u64) -> NewTask {
    NewTask::new(TOPIC).payload(Payload::new(i))
}
