use std::sync::Arc;
use std::time::Duration;

use anyhow::{Result, ensure};
use chrono::{DateTime, TimeDelta, Utc};
use futures::{StreamExt, TryStreamExt};
use punctual_domain::clock::Clock;
use punctual_domain::schedule::{Definition, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::store::{FireFilter, Page, Span};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::Topic;
use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
use tokio::sync::mpsc;

use super::{Bench, Figure, Site, TOPIC, Value, task, waits};
use crate::SystemClock;

/// How many schedules are written at a time.
const WRITERS: usize = 20;
/// How long all of them run before they are measured.
const SETTLING: Duration = Duration::from_secs(3);
/// How long the last tasks may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// Whether schedules that fire every second all do, and how late.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Recurring {
    pub(crate) schedules: u64,
    pub(crate) seconds: u64,
}

impl Recurring {
    pub(crate) async fn run(self, bench: &Bench) -> Result<Figure> {
        let value = bench.on_scratch(async |site| self.measure(site).await).await?;
        let config = format!("{} seconds={}", bench.config(), self.seconds);
        Ok(Figure { workload: "recurring", n: self.schedules, value, unit: "fires/s, ms", config })
    }

    async fn measure(self, site: &Site<'_>) -> Result<Value> {
        let (begun, mut beginnings) = mpsc::unbounded_channel();
        let engine = site.start(Noting { begun, clock: SystemClock::new() }).await?;
        let schedules = self.write(site).await?;
        engine.hints().schedules_changed();
        tokio::time::sleep(SETTLING).await;
        let from = site.store.now().await?;
        let to = from + TimeDelta::seconds(self.seconds as i64);
        tokio::time::sleep(Duration::from_secs(self.seconds)).await;
        engine.drain(PATIENCE).await?;

        let mut begun_after = Vec::new();
        while let Some((scheduled_at, lag)) = beginnings.recv().await {
            if (from..to).contains(&scheduled_at) {
                begun_after.push(lag);
            }
        }
        let written_after = written_after(site, &schedules, Span { from: Some(from), to: Some(to) }).await?;
        ensure!(!begun_after.is_empty(), "nothing fired");
        let made = written_after.len() as f64 / self.seconds as f64;
        let mut parts = vec![("fires_per_s", made.round()), ("expected", self.schedules as f64)];
        parts.extend(waits(begun_after).parts());
        let [_, _, row_p99, row_max] = waits(written_after).parts()[..] else { return Ok(Value::Parts(parts)) };
        parts.extend([("row_p99", row_p99.1), ("row_max", row_max.1)]);
        Ok(Value::Parts(parts))
    }

    async fn write(self, site: &Site<'_>) -> Result<Vec<Schedule>> {
        let zones = Arc::new(ZoneDatabase::current(None)?);
        let write = |i| {
            let zones = Arc::clone(&zones);
            async move {
                let topic = Topic::from_stored(TOPIC);
                let mut definition = Definition::new(format!("s{i}"), Rhythm::Every(1_000), "UTC", &topic);
                definition.payload = task(i).payload;
                definition.overlap_policy = OverlapPolicy::Allow;
                let schedule = Schedule::new(definition, site.store.now().await?, &zones)?;
                site.store.create_schedule(&schedule, None).await?;
                anyhow::Ok(schedule)
            }
        };
        futures::stream::iter((0..self.schedules).map(write)).buffer_unordered(WRITERS).try_collect().await
    }
}

/// How long after their instants fires were written.
async fn written_after(site: &Site<'_>, schedules: &[Schedule], span: Span) -> Result<Vec<Duration>> {
    let filter = FireFilter { scheduled_at: span, ..FireFilter::default() };
    let mut lags = Vec::new();
    for schedule in schedules {
        let fires = site.store.fires(schedule.id, &filter, Page::first(10_000)).await?;
        let made = fires.iter().filter(|fire| fire.task.is_some());
        lags.extend(made.map(|fire| (fire.fired_at - fire.scheduled_at).to_std().unwrap_or_default()));
    }
    Ok(lags)
}

/// Notes each fire's instant, and how long after it the attempt began.
struct Noting {
    begun: mpsc::UnboundedSender<(DateTime<Utc>, Duration)>,
    clock: SystemClock,
}

#[async_trait]
impl Handler for Noting {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        if let Some(scheduled_at) = attempt.scheduled_at {
            let lag = (self.clock.now() - scheduled_at).to_std().unwrap_or_default();
            // Nobody listens any more once all are counted.
            let _ = self.begun.send((scheduled_at, lag));
        }
        Outcome::completed()
    }
}
