//! The store's clock as an actor of this node knows it: our own, and how far the store's is ahead. It says when to look;
//! what is due, the store's own statements decide.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::store::{Store, StoreError};
use tokio::time::Instant;

/// How often the store's clock is learnt anew.
const LEARN_EVERY: TimeDelta = TimeDelta::minutes(1);
/// By how much our clock may leave the monotonic one before the store's is asked again.
const TOLERATED_DRIFT: TimeDelta = TimeDelta::milliseconds(100);
/// How often the store is asked for its time; the fastest answer tells most.
const MEASURES: usize = 3;

pub(crate) struct StoreClock {
    clock: Arc<dyn Clock>,
    /// What must be added to our clock to get the store's.
    offset: TimeDelta,
    /// When that was measured, by our clock and by the monotonic one.
    measured_at: Option<(DateTime<Utc>, Instant)>,
}

impl StoreClock {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, offset: TimeDelta::zero(), measured_at: None }
    }

    /// What our clock shows when the store's shows `at`.
    pub(crate) fn to_ours(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        at - self.offset
    }

    /// What the store's clock shows when ours shows `at`.
    pub(crate) fn to_theirs(&self, at: DateTime<Utc>) -> DateTime<Utc> {
        at + self.offset
    }

    /// Asks the store for its time, if that was too long ago or our clock was set since; whether it did.
    pub(crate) async fn learn(&mut self, store: &dyn Store) -> Result<bool, StoreError> {
        let (now, monotonic) = (self.clock.now(), Instant::now());
        if !self.is_stale(now, monotonic) {
            return Ok(false);
        }
        self.offset = self.measure(store).await?;
        self.measured_at = Some((now, monotonic));
        Ok(true)
    }

    fn is_stale(&self, now: DateTime<Utc>, monotonic: Instant) -> bool {
        self.measured_at.is_none_or(|(at, monotonic_at)| {
            let (passed, really_passed) = (now - at, monotonic - monotonic_at);
            // A clock that was set tells another time than it should.
            let drift = passed - TimeDelta::from_std(really_passed).unwrap_or(passed);
            passed > LEARN_EVERY || drift.abs() > TOLERATED_DRIFT
        })
    }

    /// How far the store's clock is ahead of ours, at the least: who wakes too early has to wait again.
    async fn measure(&self, store: &dyn Store) -> Result<TimeDelta, StoreError> {
        let mut best: Option<(TimeDelta, TimeDelta)> = None;
        for _ in 0..MEASURES {
            let asked_at = self.clock.now();
            let theirs = store.now().await?;
            let answered_at = self.clock.now();
            // A clock that was set in between tells nothing.
            let taken = (answered_at - asked_at).abs();
            if best.is_none_or(|(least, _)| taken < least) {
                best = Some((taken, theirs - answered_at));
            }
        }
        Ok(best.map_or_else(TimeDelta::zero, |(_, offset)| offset))
    }
}
