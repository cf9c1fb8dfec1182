//! The machine's clock: the one place that asks it for the time.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use punctual_domain::clock::Clock;
use punctual_domain::store::{Store, StoreError};
use tokio::time::Instant;

/// The longest nap: how soon a sleeper notices that somebody set the machine's clock ahead.
const NAP: Duration = Duration::from_secs(1);

/// By how much this clock may lag behind the monotonic one while somebody sleeps: it may be slewed, too.
const SLACK: Duration = Duration::from_millis(50);

/// The machine's clock, to the microsecond. When the machine's goes backwards, this one stands still until it has
/// caught up.
#[derive(Clone, Default)]
pub struct SystemClock {
    latest: Arc<AtomicI64>,
}

impl SystemClock {
    /// A clock that has told no time yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A clock beside that of a store. SQLite's is the machine's too, and may stand still since its file was opened: then this
    /// one does so with it, and both tell the same time.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn beside(store: &dyn Store) -> Result<Self, StoreError> {
        let clock = Self::new();
        if !store.has_other_nodes() {
            clock.not_before_the_latest(store.now().await?.timestamp_micros());
        }
        Ok(clock)
    }

    fn not_before_the_latest(&self, micros: i64) -> DateTime<Utc> {
        let latest = self.latest.fetch_max(micros, Ordering::AcqRel).max(micros);
        DateTime::from_timestamp_micros(latest).unwrap_or_default()
    }
}

impl Clock for SystemClock {
    fn now(&self) -> DateTime<Utc> {
        self.not_before_the_latest(Utc::now().timestamp_micros())
    }

    /// Sleeps hardly longer than it would have taken when it was called: who waits for an instant of the store's must not
    /// wait for this clock to catch up after somebody set it back.
    fn sleep_until(&self, at: DateTime<Utc>) -> BoxFuture<'static, ()> {
        let clock = self.clone();
        Box::pin(async move {
            let left = || (at - clock.now()).to_std().ok().filter(|left| !left.is_zero());
            let Some(expected) = left() else { return };
            let called_at = Instant::now();
            while let Some(left) = left()
                && let patience = (expected + SLACK).saturating_sub(called_at.elapsed())
                && !patience.is_zero()
            {
                tokio::time::sleep(left.min(patience).min(NAP)).await;
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::TimeDelta;

    #[test]
    fn it_never_goes_backwards_and_tells_whole_microseconds() {
        let clock = SystemClock::new();
        let ahead = clock.not_before_the_latest((Utc::now() + TimeDelta::hours(1)).timestamp_micros());
        assert_eq!(clock.now(), ahead);
        assert_eq!(ahead.timestamp_subsec_nanos() % 1_000, 0);
    }

    #[tokio::test]
    async fn a_sleeper_wakes_at_its_instant_and_not_before() {
        let clock = SystemClock::new();
        let at = clock.now() + TimeDelta::milliseconds(20);
        clock.sleep_until(at).await;
        assert!(clock.now() >= at);
        clock.sleep_until(at - TimeDelta::hours(1)).await;
    }

    #[tokio::test]
    async fn a_sleeper_does_not_wait_for_a_clock_that_was_set_back() {
        let clock = SystemClock::new();
        // As if the machine's clock had gone back by an hour since it was last asked.
        let latest = clock.not_before_the_latest((Utc::now() + TimeDelta::hours(1)).timestamp_micros());
        clock.sleep_until(latest + TimeDelta::milliseconds(20)).await;
        assert_eq!(clock.now(), latest);
    }
}
