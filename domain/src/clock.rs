//! Time as a dependency. Nothing but a `Clock` asks the machine what time it is.

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;

/// Tells the time, and waits for it.
pub trait Clock: Send + Sync {
    /// The present instant, to the microsecond; never earlier than one this clock told before.
    fn now(&self) -> DateTime<Utc>;

    /// Returns once `now` has reached `at`; sooner if the clock was set back meanwhile, after as long as it would have taken.
    fn sleep_until(&self, at: DateTime<Utc>) -> BoxFuture<'static, ()>;
}

#[cfg(any(test, feature = "testing"))]
mod fake {
    use super::{BoxFuture, Clock, DateTime, Utc};
    use chrono::TimeDelta;
    use tokio::sync::watch;

    /// A clock that stands still until it is moved.
    ///
    /// Built on a watch channel: a sleeper compares against the newest instant each time it is woken, so a move
    /// between its look and its wait is never lost.
    #[derive(Clone)]
    pub struct FakeClock {
        now: watch::Sender<DateTime<Utc>>,
    }

    impl FakeClock {
        /// A clock that shows `now`.
        pub fn at(now: DateTime<Utc>) -> Self {
            Self { now: watch::Sender::new(now) }
        }

        /// A clock that shows the given RFC 3339 instant.
        ///
        /// # Panics
        /// When `text` is not RFC 3339.
        pub fn at_text(text: &str) -> Self {
            Self::at(text.parse().expect("an RFC 3339 instant"))
        }

        /// Moves the clock forward and wakes whoever waited for an instant up to the new one.
        pub fn advance(&self, by: TimeDelta) {
            self.now.send_modify(|now| *now += by);
        }

        /// Moves the clock to `at`; an earlier instant than the present one leaves it where it is.
        pub fn advance_to(&self, at: DateTime<Utc>) {
            self.now.send_modify(|now| *now = at.max(*now));
        }
    }

    impl Clock for FakeClock {
        fn now(&self) -> DateTime<Utc> {
            *self.now.borrow()
        }

        fn sleep_until(&self, at: DateTime<Utc>) -> BoxFuture<'static, ()> {
            let mut now = self.now.subscribe();
            Box::pin(async move {
                // An error means the clock is gone; nobody is left to move it.
                let _ = now.wait_for(|now| *now >= at).await;
            })
        }
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[tokio::test]
        async fn a_sleeper_wakes_when_its_instant_is_reached_and_not_before() {
            let clock = FakeClock::at_text("2026-01-01T00:00:00Z");
            let sleeper = tokio::spawn(clock.sleep_until(clock.now() + TimeDelta::seconds(10)));
            clock.advance(TimeDelta::seconds(9));
            tokio::task::yield_now().await;
            assert!(!sleeper.is_finished());
            clock.advance(TimeDelta::seconds(1));
            sleeper.await.unwrap();
        }

        #[test]
        fn it_never_goes_backwards() {
            let clock = FakeClock::at_text("2026-01-02T00:00:00Z");
            clock.advance_to("2026-01-01T00:00:00Z".parse().unwrap());
            assert_eq!(clock.now(), "2026-01-02T00:00:00Z".parse::<DateTime<Utc>>().unwrap());
        }
    }
}

#[cfg(any(test, feature = "testing"))]
pub use fake::FakeClock;
