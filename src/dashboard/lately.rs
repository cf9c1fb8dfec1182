//! What was seen a moment ago: looks that may take a while, shared by all who ask and never waited for long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use punctual_domain::store::StoreError;
use tokio::sync::watch;
use tracing::{info, warn};

/// The last look at something. While a new one is under way the one before is shown.
pub(crate) struct Lately<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    seen: Option<Arc<T>>,
    /// When that was.
    seen_at: Option<Instant>,
    /// When the last look ended, also one that failed, and how long it took.
    looked_at: Option<Instant>,
    took: Duration,
    /// Whether that one failed.
    has_failed: bool,
    /// The look that is under way; it closes when that ends.
    looking: Option<watch::Receiver<()>>,
}

/// A look that takes longer is expensive: then it pauses for so many times as long, however often somebody asks.
const QUICK: Duration = Duration::from_millis(20);
const PAUSE: u32 = 20;
/// The longest pause after a look that failed: until the next one nothing new is shown.
const LONGEST_AFTER_FAILURE: Duration = Duration::from_secs(30);
/// What is so much older than it should be tells nothing of the present any more.
const OLD: Duration = Duration::from_secs(30);

impl<T> State<T> {
    /// How long after a look the next one is made.
    fn pause(&self, fresh: Duration) -> Duration {
        let pause = if self.took > QUICK { self.took * PAUSE } else { Duration::ZERO };
        fresh.max(if self.has_failed { pause.min(LONGEST_AFTER_FAILURE) } else { pause })
    }

    fn is_fresh(&self, fresh: Duration, now: Instant) -> bool {
        self.looked_at.is_some_and(|at| now.saturating_duration_since(at) < self.pause(fresh))
    }

    /// What was seen, unless it is old.
    fn shown(&self, fresh: Duration, now: Instant) -> Option<Arc<T>> {
        let is_old = |at| now.saturating_duration_since(at) >= self.pause(fresh) + OLD;
        self.seen.clone().filter(|_| !self.seen_at.is_some_and(is_old))
    }

    /// Notes what became of a look. A failure is told once, until a look succeeds.
    fn end(&mut self, found: Result<T>, began_at: Instant, now: Instant) {
        (self.looked_at, self.took) = (Some(now), now.saturating_duration_since(began_at));
        match found {
            Ok(found) => {
                (self.seen, self.seen_at) = (Some(Arc::new(found)), Some(now));
                if std::mem::take(&mut self.has_failed) {
                    info!("the dashboard sees again what it could not");
                }
            }
            Err(error) => {
                if !std::mem::replace(&mut self.has_failed, true) {
                    warn!(error = format!("{error:#}"), "the dashboard cannot see what it shows");
                }
            }
        }
    }
}

/// What the store answers, if it does so in time; `what` is what was asked for.
pub(crate) async fn within<T>(
    limit: Duration,
    what: &'static str,
    asking: impl Future<Output = Result<T, StoreError>>,
) -> Result<T> {
    let answer = tokio::time::timeout(limit, asking).await;
    answer.with_context(|| format!("{what}: no answer within {} s", limit.as_secs()))?.context(what)
}

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State {
            seen: None,
            seen_at: None,
            looked_at: None,
            took: Duration::ZERO,
            has_failed: false,
            looking: None,
        })))
    }
}

impl<T: Send + Sync + 'static> Lately<T> {
    /// What was seen, if that is at most so old; else looks again, and waits for it no longer than `patience`. Whoever
    /// comes meanwhile sees what was seen before, or waits for the same look where that is nothing. `look` is given what
    /// was seen before, however old. Answers `None` where nothing was seen yet, or nothing for long.
    pub(crate) async fn get<Looking>(
        &self,
        fresh: Duration,
        patience: Duration,
        look: impl FnOnce(Option<Arc<T>>) -> Looking,
    ) -> Option<Arc<T>>
    where
        Looking: Future<Output = Result<T>> + Send + 'static,
    {
        let mut done = match self.begin(fresh) {
            Begun::Not(seen) => return seen,
            Begun::ByOthers(done) => done,
            Begun::Here { before, end, done } => {
                let (looking, under_way) = (look(before), UnderWay { state: Arc::clone(&self.0), _end: end });
                tokio::spawn(async move {
                    let began_at = Instant::now();
                    let found = looking.await;
                    let mut state = under_way.state.lock().unwrap_or_else(PoisonError::into_inner);
                    state.end(found, began_at, Instant::now());
                    drop(state);
                    drop(under_way);
                });
                done
            }
        };
        // Whoever waits is told by the end of the channel; nothing is ever sent over it.
        let _ = tokio::time::timeout(patience, done.changed()).await;
        self.state().shown(fresh, Instant::now())
    }

    /// Finds out whether somebody has to look, and notes that they do.
    fn begin(&self, fresh: Duration) -> Begun<T> {
        let (mut state, now) = (self.state(), Instant::now());
        match (state.shown(fresh, now), &state.looking) {
            (Some(seen), Some(_)) => Begun::Not(Some(seen)),
            (None, Some(looking)) => Begun::ByOthers(looking.clone()),
            (seen, None) if state.is_fresh(fresh, now) => Begun::Not(seen),
            (_, None) => {
                let (before, (end, done)) = (state.seen.clone(), watch::channel(()));
                state.looking = Some(done.clone());
                Begun::Here { before, end, done }
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State<T>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is to be done for somebody who asks.
enum Begun<T> {
    /// Nothing: this is what was seen.
    Not(Option<Arc<T>>),
    /// To wait for the look of somebody else.
    ByOthers(watch::Receiver<()>),
    /// To look.
    Here { before: Option<Arc<T>>, end: watch::Sender<()>, done: watch::Receiver<()> },
}

/// A look that ends when this is dropped, however it does.
struct UnderWay<T> {
    state: Arc<Mutex<State<T>>>,
    /// Dropped after the state says so: whoever waits finds what was seen.
    _end: watch::Sender<()>,
}

impl<T> Drop for UnderWay<T> {
    fn drop(&mut self) {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).looking = None;
    }
}

#[cfg(test)]
mod tests {
    use tokio::sync::oneshot;

    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn broken() -> anyhow::Error {
        anyhow::anyhow!("the database is away")
    }

    /// What was seen this long before `now`, by a look that took so long; the last one failed or not.
    fn seen(ago: Duration, took: Duration, has_failed: bool, now: Instant) -> State<i32> {
        let at = now.checked_sub(ago);
        State { seen: Some(Arc::new(1)), seen_at: at, looked_at: at, took, has_failed, looking: None }
    }

    #[tokio::test]
    async fn a_look_is_shared_while_it_is_fresh() {
        let lately = Lately::default();
        assert_eq!(lately.get(LONG, LONG, |_| async { Ok(1) }).await.as_deref(), Some(&1));
        assert_eq!(lately.get(LONG, LONG, |_| async { Ok(2) }).await.as_deref(), Some(&1));
        let next = |before: Option<Arc<i32>>| async move { Ok(before.map_or(0, |before| *before + 10)) };
        assert_eq!(lately.get(Duration::ZERO, LONG, next).await.as_deref(), Some(&11));
    }

    #[tokio::test]
    async fn who_has_no_patience_sees_what_was_seen_before() {
        let lately = Lately::default();
        lately.get(LONG, LONG, |_| async { Ok(1) }).await;
        let (finish, finished) = oneshot::channel::<()>();
        let slow = move |_| async move { finished.await.map(|()| 2).context("dropped") };
        assert_eq!(lately.get(Duration::ZERO, Duration::ZERO, slow).await.as_deref(), Some(&1));
        assert_eq!(lately.get(Duration::ZERO, LONG, |_| async { Ok(3) }).await.as_deref(), Some(&1), "one at a time");
        finish.send(()).unwrap();
        while lately.state().looking.is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lately.get(LONG, LONG, |_| async { Ok(4) }).await.as_deref(), Some(&2));
    }

    #[tokio::test]
    async fn whoever_comes_during_the_first_look_waits_for_it() {
        let lately = Lately::default();
        let (finish, finished) = oneshot::channel::<()>();
        let first = lately.get(LONG, LONG, move |_| async move { finished.await.map(|()| 1).context("dropped") });
        let second = async {
            // The first has begun: futures are polled in order.
            assert!(lately.state().looking.is_some());
            lately.get(LONG, LONG, |_| async { Ok(2) }).await
        };
        let third = async {
            finish.send(()).unwrap();
        };
        let (first, second, ()) = tokio::join!(biased; first, second, third);
        assert_eq!((first.as_deref(), second.as_deref()), (Some(&1), Some(&1)), "one look for both");
    }

    #[tokio::test]
    async fn whoever_waits_for_a_look_that_fails_sees_nothing() {
        let lately = Lately::default();
        let (first, second) = tokio::join!(
            biased;
            lately.get(LONG, LONG, |_| async { Err::<i32, _>(broken()) }),
            lately.get(LONG, LONG, |_| async { Ok(2) }),
        );
        assert_eq!((first, second), (None, None));
    }

    #[test]
    fn an_expensive_look_is_not_repeated_soon() {
        let now = Instant::now() + LONG;
        let second = Duration::from_secs(1);
        for (took, has_failed, pause) in [
            (QUICK, false, second),
            (second, false, second * PAUSE),
            (second, true, second * PAUSE),
            (second * 10, true, LONGEST_AFTER_FAILURE),
            (Duration::ZERO, true, second),
        ] {
            assert!(seen(pause - QUICK, took, has_failed, now).is_fresh(second, now), "{took:?} {has_failed}");
            assert!(!seen(pause, took, has_failed, now).is_fresh(second, now), "{took:?} {has_failed}");
        }
    }

    #[test]
    fn what_is_old_is_not_shown() {
        let (now, second) = (Instant::now() + LONG, Duration::from_secs(1));
        for (ago, took, is_shown) in [
            (OLD, QUICK, true),
            (OLD + second, QUICK, false),
            (OLD + second, second, true),
            (OLD + second * PAUSE, second, false),
        ] {
            assert_eq!(seen(ago, took, false, now).shown(second, now).is_some(), is_shown, "{ago:?} {took:?}");
        }
    }

    #[tokio::test]
    async fn a_look_that_fails_leaves_what_was_seen() {
        let lately = Lately::default();
        lately.get(LONG, LONG, |_| async { Ok(1) }).await;
        assert_eq!(lately.get(Duration::ZERO, LONG, |_| async { Err(broken()) }).await.as_deref(), Some(&1));
        assert_eq!(lately.get(Duration::ZERO, LONG, |_| async { Ok(2) }).await.as_deref(), Some(&2));
    }

    #[tokio::test]
    async fn a_look_that_fails_is_not_repeated_at_once() {
        let lately = Lately::default();
        assert_eq!(lately.get(LONG, LONG, |_| async { Err::<i32, _>(broken()) }).await, None);
        assert_eq!(lately.get(LONG, LONG, |_| async { Ok(1) }).await, None, "it was looked a moment ago");
        assert_eq!(lately.get(Duration::ZERO, LONG, |_| async { Ok(2) }).await.as_deref(), Some(&2));
    }
}
