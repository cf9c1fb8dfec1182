//! What was seen a moment ago: looks that may take a while, shared by all who ask and never waited for long.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::sync::watch;

/// The last look at something. While a new one is under way the one before is shown.
pub(crate) struct Lately<T>(Arc<Mutex<State<T>>>);

struct State<T> {
    seen: Option<Arc<T>>,
    /// When that was.
    seen_at: Option<Instant>,
    /// How long the last look took.
    took: Duration,
    /// The look that is under way; it closes when that ends.
    looking: Option<watch::Receiver<()>>,
}

/// A look that takes longer is expensive: then it pauses for so many times as long, however often somebody asks.
const QUICK: Duration = Duration::from_millis(20);
const PAUSE: u32 = 20;

impl<T> State<T> {
    fn is_fresh(&self, fresh: Duration) -> bool {
        let fresh = if self.took > QUICK { fresh.max(self.took * PAUSE) } else { fresh };
        self.seen_at.is_some_and(|at| at.elapsed() < fresh)
    }
}

impl<T> Default for Lately<T> {
    fn default() -> Self {
        Self(Arc::new(Mutex::new(State { seen: None, seen_at: None, took: Duration::ZERO, looking: None })))
    }
}

impl<T: Send + Sync + 'static> Lately<T> {
    /// What was seen, if that is at most so old; else looks again, and waits for it no longer than `patience`. Whoever
    /// comes meanwhile sees what was seen before, or waits for the same look where that is nothing. `look` is given what
    /// was seen before; `None` is a look that failed. Answers `None` where nothing was seen yet.
    pub(crate) async fn get<Looking>(
        &self,
        fresh: Duration,
        patience: Duration,
        look: impl FnOnce(Option<Arc<T>>) -> Looking,
    ) -> Option<Arc<T>>
    where
        Looking: Future<Output = Option<T>> + Send + 'static,
    {
        let mut done = match self.begin(fresh) {
            Begun::Seen(seen) => return Some(seen),
            Begun::ByOthers(done) => done,
            Begun::Here { before, end, done } => {
                let (looking, under_way) = (look(before), UnderWay { state: Arc::clone(&self.0), _end: end });
                tokio::spawn(async move {
                    let began_at = Instant::now();
                    if let Some(found) = looking.await {
                        let mut state = under_way.state.lock().unwrap_or_else(PoisonError::into_inner);
                        (state.seen, state.seen_at, state.took) =
                            (Some(Arc::new(found)), Some(Instant::now()), began_at.elapsed());
                    }
                    drop(under_way);
                });
                done
            }
        };
        // Whoever waits is told by the end of the channel; nothing is ever sent over it.
        let _ = tokio::time::timeout(patience, done.changed()).await;
        self.state().seen.clone()
    }

    /// Finds out whether somebody has to look, and notes that they do.
    fn begin(&self, fresh: Duration) -> Begun<T> {
        let mut state = self.state();
        match (&state.seen, &state.looking) {
            (Some(seen), Some(_)) => Begun::Seen(Arc::clone(seen)),
            (None, Some(looking)) => Begun::ByOthers(looking.clone()),
            (Some(seen), None) if state.is_fresh(fresh) => Begun::Seen(Arc::clone(seen)),
            (before, None) => {
                let (before, (end, done)) = (before.clone(), watch::channel(()));
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
    Seen(Arc<T>),
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

    #[tokio::test]
    async fn a_look_is_shared_while_it_is_fresh() {
        let lately = Lately::default();
        assert_eq!(lately.get(LONG, LONG, |_| async { Some(1) }).await.as_deref(), Some(&1));
        assert_eq!(lately.get(LONG, LONG, |_| async { Some(2) }).await.as_deref(), Some(&1));
        let next = |before: Option<Arc<i32>>| async move { before.map(|before| *before + 10) };
        assert_eq!(lately.get(Duration::ZERO, LONG, next).await.as_deref(), Some(&11));
    }

    #[tokio::test]
    async fn who_has_no_patience_sees_what_was_seen_before() {
        let lately = Lately::default();
        lately.get(LONG, LONG, |_| async { Some(1) }).await;
        let (finish, finished) = oneshot::channel::<()>();
        let slow = move |_| async move { finished.await.ok().map(|()| 2) };
        assert_eq!(lately.get(Duration::ZERO, Duration::ZERO, slow).await.as_deref(), Some(&1));
        assert_eq!(lately.get(Duration::ZERO, LONG, |_| async { Some(3) }).await.as_deref(), Some(&1), "one at a time");
        finish.send(()).unwrap();
        while lately.state().looking.is_some() {
            tokio::task::yield_now().await;
        }
        assert_eq!(lately.get(LONG, LONG, |_| async { Some(4) }).await.as_deref(), Some(&2));
    }

    #[tokio::test]
    async fn whoever_comes_during_the_first_look_waits_for_it() {
        let lately = Lately::default();
        let (finish, finished) = oneshot::channel::<()>();
        let first = lately.get(LONG, LONG, move |_| async move { finished.await.ok().map(|()| 1) });
        let second = async {
            // The first has begun: futures are polled in order.
            assert!(lately.state().looking.is_some());
            lately.get(LONG, LONG, |_| async { Some(2) }).await
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
            lately.get(LONG, LONG, |_| async { None::<i32> }),
            lately.get(LONG, LONG, |_| async { Some(2) }),
        );
        assert_eq!((first, second), (None, None));
    }

    #[test]
    fn an_expensive_look_is_not_repeated_soon() {
        let state = |took| State { seen: Some(Arc::new(1)), seen_at: Some(Instant::now()), took, looking: None };
        assert!(!state(QUICK).is_fresh(Duration::ZERO));
        assert!(state(LONG).is_fresh(Duration::ZERO));
    }

    #[tokio::test]
    async fn a_look_that_fails_leaves_what_was_seen() {
        let lately = Lately::default();
        assert_eq!(lately.get(LONG, LONG, |_| async { None::<i32> }).await, None);
        lately.get(LONG, LONG, |_| async { Some(1) }).await;
        assert_eq!(lately.get(Duration::ZERO, LONG, |_| async { None }).await.as_deref(), Some(&1));
    }
}
