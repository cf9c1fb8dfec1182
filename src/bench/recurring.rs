use std::time::Duration;

use anyhow::{Result, ensure};
use chrono::TimeDelta;
use punctual_domain::store::Span;

use super::schedules::{Noting, between};
use super::{Bench, Figure, Site, Value, waits};

/// How long all schedules run before they are measured, and after.
const SETTLING: Duration = Duration::from_secs(3);
/// How long the last tasks may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether schedules that fire every second all do, and how late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recurring {
    pub(crate) schedules: u64,
    pub(crate) seconds: u64,
    /// All of them at the same instant, or each from when it was written.
    pub(crate) at_once: bool,
}

impl Recurring {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figure> {
        let value = bench.on_scratch(async |site| self.measure(site).await).await?;
        let config = format!("{} seconds={} at_once={}", bench.config(), self.seconds, self.at_once);
        Ok(Figure { workload: "recurring", n: self.schedules, value, unit: "fires/s, ms", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let (noting, mut beginnings) = Noting::new();
        let engine = site.start(noting).await?;
        let begin_at = self.at_once.then_some(site.store.now().await?);
        let schedules = site.write_schedules(self.schedules, 1_000, |_| begin_at).await?;
        engine.hints().schedules_changed();
        tokio::time::sleep(SETTLING).await;
        let from = site.store.now().await?;
        let to = from + TimeDelta::seconds(self.seconds as i64);
        // What is due at the very end gets the time that it takes.
        tokio::time::sleep(Duration::from_secs(self.seconds) + SETTLING).await;
        engine.drain(PATIENCE).await?;

        let mut begun_after = Vec::new();
        while let Some((scheduled_at, lag)) = beginnings.recv().await {
            if (from..to).contains(&scheduled_at) {
                begun_after.push(lag);
            }
        }
        let fires = site.fires(&schedules, Span { from: Some(from), to: Some(to) }).await?;
        let written_after: Vec<_> = fires.iter().map(|(scheduled_at, at)| between(*scheduled_at, *at)).collect();
        ensure!(!begun_after.is_empty(), "nothing fired");
        let made = written_after.len() as f64 / self.seconds as f64;
        let mut parts = vec![("fires_per_s", made.round()), ("expected", self.schedules as f64)];
        parts.extend(waits(begun_after).parts());
        let [_, _, row_p99, row_max] = waits(written_after).parts()[..] else { return Ok(Value::Parts(parts)) };
        parts.extend([("row_p99", row_p99.1), ("row_max", row_max.1)]);
        Ok(Value::Parts(parts))
    }
}
