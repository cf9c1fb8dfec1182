//! The schedules that are measured.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use chrono::{DateTime, Utc};
use futures::{StreamExt, TryStreamExt};
use punctual_domain::clock::Clock;
use punctual_domain::schedule::{Definition, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::store::{FireFilter, Page, Span};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::Topic;
use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
use tokio::sync::mpsc;

use super::{Site, TOPIC, task};
use crate::SystemClock;

/// How many are written at a time.
const WRITERS: usize = 20;

impl Site<'_> {
    /// Writes so many schedules that fire every so many milliseconds, each from its own instant on, or from when it is
    /// written.
    pub(super) async fn write_schedules(
        &self,
        count: u64,
        every_ms: u64,
        start_at: impl Fn(u64) -> Option<DateTime<Utc>>,
    ) -> Result<Vec<Schedule>> {
        let zones = Arc::new(ZoneDatabase::current(None)?);
        let write = |i| {
            let (zones, start_at) = (Arc::clone(&zones), start_at(i));
            async move {
                let topic = Topic::from_stored(TOPIC);
                let mut definition = Definition::new(format!("s{i}"), Rhythm::Every(every_ms), "UTC", &topic);
                definition.payload = task(i).payload;
                definition.overlap_policy = OverlapPolicy::Allow;
                definition.start_at = start_at;
                let schedule = Schedule::new(definition, self.store.now().await?, &zones)?;
                self.store.create_schedule(&schedule, None).await?;
                anyhow::Ok(schedule)
            }
        };
        futures::stream::iter((0..count).map(write)).buffer_unordered(WRITERS).try_collect().await
    }

    /// The instants of fires that made a task, and when they were written.
    pub(super) async fn fires(
        &self,
        schedules: &[Schedule],
        span: Span,
    ) -> Result<Vec<(DateTime<Utc>, DateTime<Utc>)>> {
        let filter = FireFilter { scheduled_at: span, ..FireFilter::default() };
        let mut fires = Vec::new();
        for schedule in schedules {
            let found = self.store.fires(schedule.id, &filter, Page::first(10_000)).await?;
            let made = found.iter().filter(|fire| fire.task.is_some());
            fires.extend(made.map(|fire| (fire.scheduled_at, fire.fired_at)));
        }
        Ok(fires)
    }
}

/// How long it took from one instant to another, and nothing if it took less.
pub(super) fn between(from: DateTime<Utc>, to: DateTime<Utc>) -> Duration {
    (to - from).to_std().unwrap_or_default()
}

/// Tells each fire's instant, and how long after it the attempt began.
pub(super) struct Noting {
    begun: mpsc::UnboundedSender<(DateTime<Utc>, Duration)>,
    clock: SystemClock,
}

impl Noting {
    pub(super) fn new() -> (Self, mpsc::UnboundedReceiver<(DateTime<Utc>, Duration)>) {
        let (begun, beginnings) = mpsc::unbounded_channel();
        (Self { begun, clock: SystemClock::new() }, beginnings)
    }
}

#[async_trait]
impl Handler for Noting {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        if let Some(scheduled_at) = attempt.scheduled_at {
            // Nobody listens any more once all are counted.
            let _ = self.begun.send((scheduled_at, between(scheduled_at, self.clock.now())));
        }
        Outcome::completed()
    }
}
