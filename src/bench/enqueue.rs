use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Result;
use tokio::task::JoinSet;
use tokio::time::Instant;

use super::{Bench, Figure, Site, Value, rate, task};

/// How fast tasks are written, each call answered after its commit.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Enqueue {
    pub(crate) tasks: u64,
    /// How many callers write at a time.
    pub(crate) producers: u64,
    /// How many tasks each call writes.
    pub(crate) per_call: u64,
}

impl Enqueue {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figure> {
        let value = bench.on_scratch(async |site| self.measure(site).await).await?;
        let workload = if self.per_call > 1 { "enqueue-bulk" } else { "enqueue-single" };
        let database = if bench.database_url.starts_with("sqlite:") { "sqlite" } else { "postgres" };
        let config = format!("{database} producers={} per_call={}", self.producers, self.per_call);
        Ok(Figure { workload, n: self.tasks, value, unit: "tasks/s", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        // The connection is open and its statement known, as in a service at work; other programs are measured so too.
        site.store.create_tasks(vec![task(0)], None).await?;
        site.scratch.come_to_rest().await?;
        let next = Arc::new(AtomicU64::new(0));
        let mut producers = JoinSet::new();
        let started_at = Instant::now();
        for _ in 0..self.producers {
            let (store, next) = (site.store.clone(), next.clone());
            producers.spawn(async move {
                loop {
                    let first = next.fetch_add(self.per_call, Ordering::Relaxed);
                    if first >= self.tasks {
                        return anyhow::Ok(());
                    }
                    let batch = (first..self.tasks.min(first + self.per_call)).map(task).collect();
                    store.create_tasks(batch, None).await?;
                }
            });
        }
        while let Some(ended) = producers.join_next().await {
            ended??;
        }
        Ok(rate(self.tasks, started_at.elapsed()))
    }
}
