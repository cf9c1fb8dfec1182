use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chrono::TimeDelta;
use punctual_domain::store::Span;
use tokio::time::Instant;

use super::schedules::{Noting, between};
use super::{Bench, Figures, Site, Value, waits};

/// How long all schedules run before they are measured.
const SETTLING: Duration = Duration::from_secs(3);
/// How often it is looked whether all is decided.
const LOOK: Duration = Duration::from_millis(20);
/// How long the last fires and tasks may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether schedules that fire every second all do, and how late; it fails if one does not.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recurring {
    pub(crate) schedules: u64,
    pub(crate) seconds: u64,
    /// All of them at the same instant, or each from when it was written.
    pub(crate) at_once: bool,
}

impl Recurring {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        let values = bench.each_run(async |site| self.measure(site).await).await?;
        let config = format!("{} seconds={} at_once={}", bench.config(), self.seconds, self.at_once);
        Ok(Figures { workload: "recurring", n: self.schedules, values, unit: "fires, ms", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let (noting, mut beginnings) = Noting::new();
        let engine = site.start(noting).await?;
        let begin_at = self.at_once.then_some(site.store.now().await?);
        site.bench.progress.preparing();
        let schedules = site.write_schedules(self.schedules, 1_000, |_| begin_at).await?;
        engine.hints().schedules_changed();
        tokio::time::sleep(SETTLING).await;
        let from = site.store.now().await?;
        let to = from + TimeDelta::seconds(self.seconds as i64);
        site.bench.progress.begin(self.seconds);
        for second in 1..=self.seconds {
            tokio::time::sleep(Duration::from_secs(1)).await;
            site.bench.progress.reached(second);
        }

        // What is due at the very end gets the time that it takes.
        let patience = Instant::now() + PATIENCE;
        while site.store.next_tick_at().await?.fire_at.is_some_and(|next| next < to) && Instant::now() < patience {
            tokio::time::sleep(LOOK).await;
        }
        let fires = site.fires(&schedules, Span { from: Some(from), to: Some(to) }).await?;
        let made = fires.len() as u64;
        let expected = self.schedules * self.seconds;
        ensure!(made == expected, "{made} of {expected} instants made a task");
        let mut begun_after = Vec::new();
        while (begun_after.len() as u64) < made {
            let begun = tokio::time::timeout_at(patience, beginnings.recv()).await.ok().flatten();
            let (scheduled_at, lag) =
                begun.with_context(|| format!("{} of {made} attempts began", begun_after.len()))?;
            if (from..to).contains(&scheduled_at) {
                begun_after.push(lag);
            }
        }
        engine.drain(PATIENCE).await?;

        let written_after: Vec<_> = fires.iter().map(|(scheduled_at, at)| between(*scheduled_at, *at)).collect();
        let mut parts = vec![("made", made as f64), ("expected", expected as f64)];
        parts.extend(waits(begun_after).parts());
        let [_, _, row_p99, row_max] = waits(written_after).parts()[..] else { return Ok(Value::Parts(parts)) };
        parts.extend([("row_p99", row_p99.1), ("row_max", row_max.1)]);
        Ok(Value::Parts(parts))
    }
}
