use std::time::Duration;

use anyhow::{Context, Result, ensure};
use chrono::TimeDelta;

use super::schedules::{Noting, between};
use super::{Bench, Figures, Site, Value, in_ms, waits};

/// How long before the instant the engine is there and idle.
const SETTLING: TimeDelta = TimeDelta::seconds(5);
/// What writing a schedule takes at the most.
const PER_SCHEDULE: TimeDelta = TimeDelta::milliseconds(3);
/// How often it is looked whether all is decided.
const LOOK: Duration = Duration::from_millis(5);
/// How long the last tasks may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How long one leader takes over schedules that are all due at one instant.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Burst {
    pub(crate) schedules: u64,
}

impl Burst {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figures> {
        let values = bench.each_run(async |site| self.measure(site).await).await?;
        Ok(Figures { workload: "burst", n: self.schedules, values, unit: "ms", config: bench.config() })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let margin = PER_SCHEDULE * self.schedules as i32 + SETTLING * 2;
        let at = site.store.now().await? + margin;
        site.bench.progress.preparing();
        site.write_schedules(self.schedules, 24 * 60 * 60 * 1_000, |_| Some(at)).await?;
        site.scratch.come_to_rest().await?;
        let (noting, mut beginnings) = Noting::new();
        let engine = site.start(noting).await?;
        let rest = at - site.store.now().await?;
        ensure!(rest >= SETTLING, "writing {} schedules took too long", self.schedules);
        tokio::time::sleep(rest.to_std()?).await;

        let drained_at = loop {
            let (next, now) = (site.store.next_tick_at().await?, site.store.now().await?);
            if next.fire_at.is_none_or(|next| next > at) {
                break now;
            }
            tokio::time::sleep(LOOK).await;
        };
        let mut begun_after = Vec::new();
        site.bench.progress.begin(self.schedules);
        while (begun_after.len() as u64) < self.schedules {
            let begun = tokio::time::timeout(PATIENCE, beginnings.recv()).await.ok().flatten();
            let (_, lag) = begun.with_context(|| format!("{} attempts began, and no more", begun_after.len()))?;
            begun_after.push(lag);
            site.bench.progress.reached(begun_after.len() as u64);
        }
        engine.drain(PATIENCE).await?;
        let mut parts = vec![("drained", in_ms(between(at, drained_at)))];
        parts.extend(waits(begun_after).parts());
        Ok(Value::Parts(parts))
    }
}
