use std::sync::{Arc, Mutex};
use std::time::Duration;

use anyhow::{Context, Result};
use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Bench, Figures, Site, Value, number_of, task, waits};
use crate::wake::{Listening, Wake};

/// How long a task that was written may take to begin before something is wrong.
const PATIENCE: Duration = Duration::from_secs(30);

/// How long it takes from the call that writes a task to the first line of its handler, on an idle engine.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Latency {
    pub(crate) tasks: u64,
    pub(crate) gap: Duration,
}

impl Latency {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        let values = bench.each_run(async |site| self.measure(site).await).await?;
        let config = format!("{} every={}ms", bench.config(), self.gap.as_millis());
        Ok(Figures { workload: "latency", n: self.tasks, values, unit: "ms", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let (begun, mut beginnings) = mpsc::unbounded_channel();
        let engine = site.start(Noting(begun)).await?;
        let listening = Listening::default();
        listening.set(Some(engine.hints()));
        // Writes as the service does.
        let wake = Arc::new(Wake::new(listening, &site.store, Arc::default()));
        // The topic's Dispatcher is there before the first task that counts.
        wake.create_tasks(vec![task(self.tasks)], None).await?;
        tokio::time::timeout(PATIENCE, beginnings.recv()).await.context("the first task did not begin")?;

        let sent = Arc::new(Mutex::new(vec![None; self.tasks as usize]));
        site.bench.progress.begin(self.tasks);
        let first_at = Instant::now();
        for i in 0..self.tasks {
            tokio::time::sleep_until(first_at + self.gap * i as u32).await;
            site.bench.progress.reached(i);
            let (wake, sent) = (wake.clone(), sent.clone());
            tokio::spawn(async move {
                sent.lock().expect("nobody panicked with it")[i as usize] = Some(Instant::now());
                if let Err(error) = wake.create_tasks(vec![task(i)], None).await {
                    tracing::error!(%error, "a task was not written");
                }
            });
        }
        let mut lags = Vec::new();
        while (lags.len() as u64) < self.tasks {
            let next = tokio::time::timeout(PATIENCE, beginnings.recv()).await.context("a task did not begin")?;
            let (i, begun_at) = next.context("the engine gave up")?;
            let sent_at = sent.lock().expect("nobody panicked with it").get(i).copied().flatten();
            lags.extend(sent_at.map(|sent_at| begun_at - sent_at));
        }
        engine.drain(PATIENCE).await?;
        Ok(waits(lags))
    }
}

/// Notes when each attempt began.
struct Noting(mpsc::UnboundedSender<(usize, Instant)>);

#[async_trait]
impl Handler for Noting {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        let begun_at = Instant::now();
        if let Some(i) = number_of(&attempt) {
            // Nobody listens any more once all are counted.
            let _ = self.0.send((i, begun_at));
        }
        Outcome::completed()
    }
}
