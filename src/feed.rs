//! The live feed of events: one reader for this node follows the store, and all streams hear of what it finds.
//!
//! There is no row per event. The reader asks the store what happened after the place it has reached: when somebody of
//! this process says that something did, and often enough to notice what other nodes did. While nobody listens it does
//! not run at all.
//!
//! *Nothing is skipped.* An event's instant is a little older than the moment at which others can see it, so a
//! younger one may be seen first. The reader therefore looks a little behind the place it has reached each time, and
//! sweeps a second time over everything once it is so old that nothing can still appear behind it. What it has told before it
//! does not tell again.
//!
//! *Nobody is slowed down.* What was found goes into one ring, bounded in events and in bytes, from which each stream
//! takes at its own pace. When very much happens at once the reader gives them a moment; a stream that the ring has
//! overtaken all the same is told so, and ends.

mod bridge;
mod reader;
mod ring;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use chrono::{DateTime, Utc};
use punctual_domain::store::{EventCursor, MissedCursor, Store, StoreError};
use tokio::sync::{Notify, Semaphore, watch};
use tokio_util::task::AbortOnDropHandle;

pub(crate) use bridge::Bridge;
use ring::Ring;
pub(crate) use ring::{Happening, What};

/// How many streams are open at the most.
const MAX_STREAMS: usize = 256;
/// How many of them read the past at the same time; the others wait for their turn.
const MAX_CATCHING_UP: usize = 2;
/// How many events one look at the past brings: few, for each may be large.
const PAGE: u32 = 64;
/// How long the reader waits for streams that are about to be overtaken.
const MOMENT: Duration = Duration::from_millis(250);
const STEP: Duration = Duration::from_millis(2);

/// What happened, as it happens.
#[derive(Clone)]
pub(crate) struct Feed(Arc<Shared>);

struct Shared {
    store: Arc<dyn Store>,
    /// Says that something happened in this process.
    happened: Arc<Notify>,
    state: Mutex<State>,
    /// The place of the newest event, and whether there will be more.
    news: watch::Sender<News>,
    catching_up: Semaphore,
}

#[derive(Default)]
struct State {
    ring: Ring,
    /// The streams, and how far those have come that hear what is new.
    streams: HashMap<u64, Option<u64>>,
    /// How many streams there ever were.
    opened: u64,
    /// Runs while there are streams.
    reader: Option<AbortOnDropHandle<()>>,
}

#[derive(Clone, Copy, Default)]
struct News {
    end: u64,
    is_closed: bool,
}

/// Why a stream ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// It did not keep up.
    Overtaken,
    /// The service stops.
    Closing,
}

impl Feed {
    pub(crate) fn new(store: Arc<dyn Store>, happened: Arc<Notify>) -> Self {
        Self(Arc::new(Shared {
            store,
            happened,
            state: Mutex::default(),
            news: watch::Sender::new(News::default()),
            catching_up: Semaphore::new(MAX_CATCHING_UP),
        }))
    }

    /// Hears of everything from now on; `None` if too many do already, or the service stops.
    pub(crate) fn listen(&self) -> Option<Hearing> {
        let mut state = self.0.state();
        if state.streams.len() >= MAX_STREAMS || self.0.news.borrow().is_closed {
            return None;
        }
        state.opened += 1;
        let number = state.opened;
        state.streams.insert(number, None);
        metrics::gauge!("punctual_event_streams").set(state.streams.len() as f64);
        if state.reader.is_none() {
            state.reader = Some(AbortOnDropHandle::new(tokio::spawn(reader::follow(Arc::clone(&self.0)))));
        }
        Some(Hearing { number, next: state.ring.end(), shared: Arc::clone(&self.0), news: self.0.news.subscribe() })
    }

    /// Waits until the service stops.
    pub(crate) async fn closed(&self) {
        // The sender is in our own hands.
        let _ = self.0.news.subscribe().wait_for(|news| news.is_closed).await;
    }

    /// Ends every stream.
    pub(crate) fn close(&self) {
        self.0.news.send_modify(|news| news.is_closed = true);
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Tells all streams.
    fn tell(&self, happenings: Vec<Happening>) {
        if happenings.is_empty() {
            return;
        }
        let end = {
            let mut state = self.state();
            happenings.into_iter().for_each(|happening| state.ring.push(happening));
            state.ring.end()
        };
        self.news.send_modify(|news| news.end = end);
    }

    /// Gives streams a moment that will be overtaken otherwise. One that takes nothing meanwhile is not waited for again.
    async fn wait_for_streams(&self) {
        let began_at = Instant::now();
        let is_urgent = || {
            let state = self.state();
            state.streams.values().flatten().any(|next| state.ring.is_about_to_overtake(*next))
        };
        while began_at.elapsed() < MOMENT && is_urgent() {
            tokio::time::sleep(STEP).await;
        }
    }

    /// How long after its instant an event may appear: one process writes one after the other, and of several each statement
    /// may take as long as its deadline.
    fn overlap(&self) -> Duration {
        if self.store.has_other_nodes() { Duration::from_secs(35) } else { Duration::from_millis(100) }
    }
}

/// One stream's place in the feed.
pub(crate) struct Hearing {
    shared: Arc<Shared>,
    news: watch::Receiver<News>,
    number: u64,
    next: u64,
}

impl Hearing {
    /// What comes next, at least one.
    ///
    /// # Errors
    /// When there is nothing more to hear.
    pub(crate) async fn next(&mut self) -> Result<Vec<Arc<Happening>>, End> {
        loop {
            let news = *self.news.borrow_and_update();
            if news.is_closed {
                return Err(End::Closing);
            }
            if let Some(happenings) = self.take()? {
                return Ok(happenings);
            }
            if self.news.changed().await.is_err() {
                return Err(End::Closing);
            }
        }
    }

    /// What there is to take, if anything.
    fn take(&mut self) -> Result<Option<Vec<Arc<Happening>>>, End> {
        let mut state = self.shared.state();
        let happenings = state.ring.from(self.next).ok_or(End::Overtaken)?;
        self.next += happenings.len() as u64;
        state.streams.insert(self.number, Some(self.next));
        Ok(Some(happenings).filter(|happenings| !happenings.is_empty()))
    }

    /// Whether the service stops.
    pub(crate) fn is_closed(&self) -> bool {
        self.news.borrow().is_closed
    }

    /// Goes on behind the event `id`, if it is still at hand: then nothing is repeated.
    pub(crate) fn resume_after(&mut self, id: &str) -> bool {
        let place = self.shared.state().ring.place_of(id);
        self.next = place.map_or(self.next, |place| place + 1);
        place.is_some()
    }

    /// A page of the past, oldest first; an empty one if it has reached the present.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn catch_up(&mut self, past: &mut Past) -> Result<Vec<Arc<Happening>>, StoreError> {
        // Closed never.
        let _turn = self.shared.catching_up.acquire().await;
        let events = self.shared.store.events(&past.after, PAGE).await?;
        let missed = self.shared.store.missed_fires(&past.missed, PAGE).await?;
        past.after = events.last().map_or(past.after, EventCursor::of);
        past.missed = missed.last().map_or(past.missed, MissedCursor::of);
        let missed = missed.into_iter().map(Happening::of_missed);
        let mut page: Vec<_> = events.into_iter().map(Happening::of_event).chain(missed).map(Arc::new).collect();
        page.sort_by_key(|happening| happening.at);
        Ok(page)
    }

    /// The past since an instant, and as much before it as may have appeared later.
    pub(crate) fn past_since(&self, at: DateTime<Utc>) -> Past {
        let overlap = self.shared.overlap();
        Past { after: EventCursor::since(at - overlap), missed: MissedCursor::since(at - overlap), overlap }
    }

    /// Whether the past has to be read further: more has happened meanwhile than is at hand. What is new from here on is.
    pub(crate) fn is_overtaken(&mut self) -> bool {
        let state = self.shared.state();
        let is_overtaken = state.ring.from(self.next).is_none();
        if is_overtaken {
            self.next = state.ring.end();
        }
        is_overtaken
    }
}

impl Drop for Hearing {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        state.streams.remove(&self.number);
        metrics::gauge!("punctual_event_streams").set(state.streams.len() as f64);
        if state.streams.is_empty() {
            state.reader = None;
            state.ring.clear();
        }
    }
}

/// How far a stream has read the past.
pub(crate) struct Past {
    after: EventCursor,
    missed: MissedCursor,
    overlap: Duration,
}

impl Past {
    /// Reads the last stretch once more: something may have appeared in it.
    pub(crate) fn go_back(&mut self) {
        self.after = EventCursor::since(self.after.at - self.overlap);
        self.missed = MissedCursor::since(self.missed.noted_at - self.overlap);
    }
}
