//! The store's time as this process knows it: its own clock, and how far the store's is ahead.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::store::{Store, StoreError};

/// Our clock may differ from the store's by this much before somebody should know.
pub(crate) const TOLERATED_OFFSET: TimeDelta = TimeDelta::seconds(2);

/// Tells the store's time without asking it each time.
pub(crate) struct StoreTime {
    clock: Arc<dyn Clock>,
    offset_micros: AtomicI64,
}

impl StoreTime {
    pub(crate) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { clock, offset_micros: AtomicI64::new(0) }
    }

    /// The store's present instant, as far as known.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.at(self.clock.now())
    }

    /// What the store's clock shows when ours shows `ours`, as far as known.
    pub(crate) fn at(&self, ours: DateTime<Utc>) -> DateTime<Utc> {
        ours + TimeDelta::microseconds(self.offset_micros.load(Ordering::Relaxed))
    }

    /// Asks the store, and keeps how far its clock is ahead of ours.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn measure(&self, store: &dyn Store) -> Result<TimeDelta, StoreError> {
        let asked_at = self.clock.now();
        let theirs = store.now().await?;
        let ours = asked_at + (self.clock.now() - asked_at) / 2;
        let offset = theirs - ours;
        self.offset_micros.store(offset.num_microseconds().unwrap_or_default(), Ordering::Relaxed);
        Ok(offset)
    }
}
