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
        // The connection is open and its statement known, as in a program at work; others are measured so too.
        punctual.enqueue(task(0)).await?;
        scratch.come_to_rest().await?;
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
                    match self.per_call {
                        1 => drop(punctual.enqueue(task(first)).await?),
                        _ => {
                            let call = first..self.tasks.min(first + self.per_call);
                            punctual.enqueue_many(call.map(task)).await?;
                        }
                    }
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
}

fn task(i: u64) -> NewTask {
    NewTask::new(TOPIC).payload(Payload::new(i))
}
