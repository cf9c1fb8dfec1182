//! The one reader of this node: follows what happens in the store.

use std::collections::{HashSet, VecDeque};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::event::{Event, MissedFire};
use punctual_domain::store::{EventCursor, MissedCursor, StoreError};
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::{Happening, Shared};

/// How many events one look brings: few, for each may be large.
const PAGE: u32 = 64;
/// How much is told at a time.
const BYTES_AT_A_TIME: usize = 4 * 1024 * 1024;
/// How often to look when nobody says that anything happened: other nodes say nothing.
const POLL_OTHERS: Duration = Duration::from_millis(200);
const POLL_ALONE: Duration = Duration::from_millis(500);
/// The pause between two looks: what settles meanwhile is read together.
const PAUSE: Duration = Duration::from_millis(20);
/// The pause while the store is away.
const RECOVERY: Duration = Duration::from_secs(1);
/// How far each look goes back, in time, events and bytes: most of what appears late appears there.
const LOOK_BACK: Duration = Duration::from_millis(500);
const LOOK_BACK_EVENTS: usize = 500;
const LOOK_BACK_BYTES: usize = 1024 * 1024;
/// How often what is old enough is swept.
const SWEEP: Duration = Duration::from_secs(1);

/// Follows the store until it is dropped.
pub(super) async fn follow(shared: Arc<Shared>) {
    let mut is_lost = false;
    let mut reader = None;
    loop {
        match look(&shared, &mut reader).await {
            Ok(()) => {
                if std::mem::take(&mut is_lost) {
                    info!("events are followed again");
                }
                let poll = if shared.store.has_other_nodes() { POLL_OTHERS } else { POLL_ALONE };
                // Whether somebody said so or it is time: look.
                let _ = timeout(poll, shared.happened.notified()).await;
                sleep(PAUSE).await;
            }
            Err(error) => {
                if std::mem::replace(&mut is_lost, true) {
                    debug!(%error, "events still not followed");
                } else {
                    warn!(%error, "events cannot be followed");
                }
                sleep(RECOVERY).await;
            }
        }
    }
}

/// Looks once; the first look finds out what time it is.
async fn look(shared: &Shared, reader: &mut Option<Reader>) -> Result<(), StoreError> {
    let reader = match reader {
        Some(reader) => reader,
        None => reader.insert(Reader::start(shared).await?),
    };
    reader.look(shared).await
}

/// How far it has come.
struct Reader {
    /// The newest place reached.
    head: EventCursor,
    /// The latest events told, oldest first, with what they take, and what that is together.
    recent: VecDeque<(EventCursor, usize)>,
    recent_bytes: usize,
    /// The last that is no longer among them: no look goes back behind it.
    floor: EventCursor,
    told: Told,
    /// Everything up to here was read twice.
    swept: EventCursor,
    swept_at: Instant,
    /// The same of missed fires, of which there are few: each look reads all that are not swept.
    missed_swept: MissedCursor,
}

impl Reader {
    async fn start(shared: &Shared) -> Result<Self, StoreError> {
        let now = shared.store.now().await?;
        let head = EventCursor::since(now - LOOK_BACK);
        Ok(Self {
            head,
            recent: VecDeque::new(),
            recent_bytes: 0,
            floor: head,
            told: Told::default(),
            swept: EventCursor::since(now - shared.overlap()),
            swept_at: Instant::now(),
            missed_swept: MissedCursor::since(now - shared.overlap()),
        })
    }

    async fn look(&mut self, shared: &Shared) -> Result<(), StoreError> {
        let mut after = self.look_back();
        loop {
            let events = shared.store.events(&after, PAGE).await?;
            let (Some(last), count) = (events.last(), events.len()) else { break };
            after = EventCursor::of(last);
            if after > self.head {
                self.head = after;
            }
            self.tell(shared, events).await;
            if count < PAGE as usize / 2 {
                break;
            }
        }
        let missed = self.read_missed(shared).await?;
        if self.swept_at.elapsed() >= SWEEP {
            self.sweep(shared, &missed).await?;
        }
        Ok(())
    }

    /// Where the next look begins: a little behind the newest place, but not many events, and nothing that was swept.
    fn look_back(&self) -> EventCursor {
        EventCursor::since(self.head.at - LOOK_BACK).max(self.swept).max(self.floor)
    }

    fn note_recent(&mut self, place: EventCursor, bytes: usize) {
        self.recent.push_back((place, bytes));
        self.recent_bytes += bytes;
        while (self.recent.len() > LOOK_BACK_EVENTS || self.recent_bytes > LOOK_BACK_BYTES)
            && let Some((place, bytes)) = self.recent.pop_front()
        {
            self.recent_bytes -= bytes;
            // Late ones are out of order.
            self.floor = self.floor.max(place).min(self.head);
        }
    }

    /// Reads everything once more that is so old that nothing can appear behind it any more.
    async fn sweep(&mut self, shared: &Shared, missed: &[MissedCursor]) -> Result<(), StoreError> {
        let until = shared.store.now().await? - shared.overlap();
        loop {
            let mut events = shared.store.events(&self.swept, PAGE).await?;
            let is_full = events.len() >= PAGE as usize / 2;
            events.retain(|event| event.at <= until);
            let Some(last) = events.last() else { break };
            self.swept = EventCursor::of(last);
            self.tell(shared, events).await;
            if !is_full {
                break;
            }
        }
        let is_old = |place: &&MissedCursor| place.noted_at <= until;
        self.missed_swept = missed.iter().take_while(is_old).last().copied().unwrap_or(self.missed_swept);
        self.told.forget_before(until);
        self.swept_at = Instant::now();
        Ok(())
    }

    /// Tells of missed fires, and answers the places of all that are not swept.
    async fn read_missed(&mut self, shared: &Shared) -> Result<Vec<MissedCursor>, StoreError> {
        let (mut places, mut after) = (Vec::new(), self.missed_swept);
        loop {
            let missed = shared.store.missed_fires(&after, PAGE).await?;
            let Some(last) = missed.last() else { return Ok(places) };
            after = MissedCursor::of(last);
            places.extend(missed.iter().map(MissedCursor::of));
            let is_new = |missed: &MissedFire| self.told.is_new(missed.noted_at, &missed.id());
            shared.tell(missed.into_iter().filter(is_new).map(Happening::of_missed).collect());
        }
    }

    /// Tells what was not told before.
    async fn tell(&mut self, shared: &Shared, events: Vec<Event>) {
        let (mut news, mut bytes) = (Vec::new(), 0);
        for event in events {
            let place = EventCursor::of(&event);
            if !self.told.is_new(place.at, &(place.task_id, place.is_end, place.attempt)) {
                continue;
            }
            let happening = Happening::of_event(event);
            self.note_recent(place, happening.bytes());
            bytes += happening.bytes();
            news.push(happening);
            if bytes > BYTES_AT_A_TIME {
                shared.tell(std::mem::take(&mut news));
                shared.wait_for_streams().await;
                bytes = 0;
            }
        }
        if !news.is_empty() {
            shared.tell(news);
            shared.wait_for_streams().await;
        }
    }
}

/// What was told lately, a few bytes each.
#[derive(Default)]
struct Told {
    known: HashSet<u64>,
    in_order: VecDeque<(DateTime<Utc>, u64)>,
}

impl Told {
    /// Notes an event; whether it is the first time.
    fn is_new(&mut self, at: DateTime<Utc>, event: &impl Hash) -> bool {
        let mut hasher = DefaultHasher::new();
        (at, event).hash(&mut hasher);
        let hash = hasher.finish();
        let is_new = self.known.insert(hash);
        if is_new {
            self.in_order.push_back((at, hash));
        }
        is_new
    }

    /// Forgets what nobody will read again.
    fn forget_before(&mut self, at: DateTime<Utc>) {
        // Late ones are out of order, and are kept for as long as what was told before them.
        while let Some((told_at, hash)) = self.in_order.front().copied()
            && told_at < at - LOOK_BACK
        {
            self.in_order.pop_front();
            self.known.remove(&hash);
        }
    }
}
