//! Pull: workers in any language claim by the API, and wait at this desk for what becomes due.
//!
//! Whoever comes takes a place, then looks for due tasks and claims them; with none, the place is kept until the worker is
//! woken or has waited long enough. Nobody at the desk asks the database again and again:
//!
//! - A task that is written here, due, wakes one worker who wants its topic.
//! - Whatever else may have made tasks due (other nodes, expired leases, the engine's own) makes the desk look once for
//!   all who wait, at most so often, and wake as many as there are tasks for.
//! - Time: each look tells when the next task of a wanted topic is due, and the desk wakes then.
//! - What is due and cannot be claimed waits for something else than time (its topic is full, or its turn has not come):
//!   looked for again every second, and when a rate allows the next.
//!
//! A worker who is woken and leaves without a task passes the wake on. One whose connection is gone takes nothing: what
//! was claimed for it is handed back, as if it had not been.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use metrics::gauge;
use punctual_actors::Overheard;
use punctual_domain::clock::Clock;
use punctual_domain::id::NodeId;
use punctual_domain::store::{PendingTopic, PullRequest, PullTopic, Remember, Reply, Settling, Store, StoreError};
use punctual_domain::task::{Settlement, Task};
use punctual_domain::topic::{Route, Topic, TopicDefinition, TopicPattern};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{debug, warn};

use crate::store_time::StoreTime;
use crate::topics::TopicDirectory;
use crate::wake::Wake;

/// How many workers may be here at once.
const PLACES: usize = 2048;
/// How many topics with pending tasks one look considers.
const TOPICS: u32 = 10_000;
/// How many topics share one claim, in the order of claims; further ones have their turn after them.
const TOPICS_AT_ONCE: usize = 100;
/// How long the payloads of one claim may be together.
const BYTES: u64 = 8 * 1024 * 1024;
/// The shortest pause between two looks of the desk.
const BETWEEN_LOOKS: Duration = Duration::from_millis(20);
/// How often it looks for what is due and could not be claimed, and while the store is away.
const BLOCKED: TimeDelta = TimeDelta::seconds(1);

/// What the desk works with.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) topics: Arc<TopicDirectory>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) node: NodeId,
}

/// Where workers claim and wait. Its own looks end with the last handle to it.
#[derive(Clone)]
pub(crate) struct PullDesk(Arc<Desk>);

struct Desk {
    parts: Parts,
    waiting: Mutex<Waiting>,
    /// There is something to look for, or a sooner instant to wake at.
    rung: Arc<Notify>,
    looking: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Default)]
struct Waiting {
    /// In the order they came.
    places: BTreeMap<u64, Place>,
    next: u64,
    look: bool,
    /// When to look by ourselves, by the store's clock.
    look_at: Option<DateTime<Utc>>,
}

struct Place {
    patterns: Vec<TopicPattern>,
    max: u32,
    state: PlaceState,
    woken: Arc<Notify>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum PlaceState {
    /// Waits to be woken.
    Resting,
    /// Looks for itself.
    Looking,
    /// The same, and something happened since it began.
    LookingAgain,
}

/// What a worker asks for.
pub(crate) struct Ask {
    pub(crate) patterns: Vec<TopicPattern>,
    pub(crate) max: u32,
    pub(crate) lease_seconds: u32,
}

impl PullDesk {
    pub(crate) fn new(parts: Parts) -> Self {
        let desk = Arc::new(Desk { parts, waiting: Mutex::default(), rung: Arc::default(), looking: Mutex::new(None) });
        let looking = tokio::spawn(keep_looking(Arc::downgrade(&desk)));
        *desk.looking.lock().unwrap_or_else(PoisonError::into_inner) = Some(looking);
        Self(desk)
    }

    /// Takes a place; `None` if there is none left.
    pub(crate) fn enter(&self, ask: Ask) -> Option<Visit> {
        let mut waiting = self.0.waiting();
        if waiting.places.len() >= PLACES {
            return None;
        }
        let number = waiting.next;
        waiting.next += 1;
        let woken = Arc::new(Notify::new());
        let (patterns, max) = (ask.patterns.clone(), ask.max);
        let place = Place { patterns, max, state: PlaceState::Looking, woken: Arc::clone(&woken) };
        waiting.places.insert(number, place);
        gauge!("punctual_workers").set(waiting.places.len() as f64);
        drop(waiting);
        Some(Visit { desk: self.clone(), number, ask, woken })
    }

    /// Hears what the engine hears.
    pub(crate) fn heard(&self, heard: &Overheard) {
        if *heard == Overheard::Topics {
            self.0.parts.topics.forget();
        }
        let mut waiting = self.0.waiting();
        if waiting.places.is_empty() {
            return;
        }
        match heard {
            Overheard::Task(topic, at) if *at <= self.0.parts.time.now() => waiting.wake(topic, 1),
            Overheard::Task(topic, at) => {
                if waiting.places.values().any(|place| place.wants(topic)) && waiting.look_at(*at) {
                    self.0.rung.notify_one();
                }
            }
            Overheard::Cancelled(_) => {}
            Overheard::Tasks | Overheard::Topics => {
                waiting.look = true;
                self.0.rung.notify_one();
            }
        }
    }

    /// Something may be claimed that could not be before.
    pub(crate) fn ring(&self) {
        self.heard(&Overheard::Tasks);
    }
}

impl Desk {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// One look for all who rest: wakes as many as there is something for, and finds out when to look again.
    async fn look(&self) {
        let patterns: BTreeSet<TopicPattern> = {
            let mut waiting = self.waiting();
            (waiting.look, waiting.look_at) = (false, None);
            waiting.again();
            let resting = waiting.places.values().filter(|place| place.state == PlaceState::Resting);
            resting.flat_map(|place| place.patterns.iter().cloned()).collect()
        };
        if patterns.is_empty() {
            return;
        }
        let patterns: Vec<_> = patterns.into_iter().collect();
        let found = self.pullable(&patterns).await;
        let now = self.parts.time.now();
        let mut waiting = self.waiting();
        match found {
            Ok(found) => {
                for (PendingTopic { topic, due, next_due_at }, _) in &found {
                    if *due > 0 {
                        waiting.wake(topic, *due);
                        waiting.look_at(now + BLOCKED);
                    }
                    next_due_at.map(|at| waiting.look_at(at));
                }
            }
            Err(error) => {
                debug!(%error, "the desk could not look for tasks");
                waiting.look_at(now + BLOCKED);
            }
        }
    }

    /// Topics that match, have pending tasks, and are there for workers, with what each allows.
    async fn pullable(&self, patterns: &[TopicPattern]) -> Result<Vec<(PendingTopic, PullTopic)>, StoreError> {
        let definitions = self.parts.topics.definitions().await?;
        if !definitions.iter().any(|definition| definition.route == Route::Pull) {
            return Ok(Vec::new());
        }
        let pending = self.parts.store.pending_topics(patterns, TOPICS).await?;
        let allowed = |topic: &Topic| {
            let definition = TopicDefinition::for_topic(&definitions, topic)?;
            (definition.route == Route::Pull && !definition.paused).then(|| PullTopic {
                topic: topic.clone(),
                concurrency: definition.concurrency,
                rate_per_second: definition.rate_per_second,
            })
        };
        let with_terms = |pending: PendingTopic| allowed(&pending.topic).map(|terms| (pending, terms));
        Ok(pending.into_iter().filter_map(with_terms).collect())
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let looking = self.looking.get_mut().unwrap_or_else(PoisonError::into_inner);
        if let Some(looking) = looking.take() {
            looking.abort();
        }
    }
}

/// Looks whenever there is a reason to, until the desk is gone.
async fn keep_looking(desk: std::sync::Weak<Desk>) {
    loop {
        let Some(here) = desk.upgrade() else { return };
        let look_at = {
            let waiting = here.waiting();
            if waiting.look { Some(here.parts.time.now()) } else { waiting.look_at }
        };
        let left = look_at.map(|at| at - here.parts.time.now());
        if left.is_some_and(|left| left <= TimeDelta::zero()) {
            here.look().await;
            drop(here);
            // Not by the project's clock: this is about the load on the database, not about when things are due.
            tokio::time::sleep(BETWEEN_LOOKS).await;
            continue;
        }
        let (rung, clock) = (Arc::clone(&here.rung), Arc::clone(&here.parts.clock));
        // Whoever only waits does not keep the desk alive.
        drop(here);
        match left {
            Some(left) => tokio::select! {
                () = clock.sleep_until(clock.now() + left) => {}
                () = rung.notified() => {}
            },
            None => rung.notified().await,
        }
    }
}

impl Waiting {
    /// Wakes those who rest and want the topic, in the order they came, until there are enough for so many tasks. Whoever
    /// looks for itself meanwhile looks again.
    fn wake(&mut self, topic: &Topic, mut tasks: u32) {
        for place in self.places.values_mut().filter(|place| place.wants(topic)) {
            if tasks == 0 {
                return;
            }
            match place.state {
                PlaceState::Resting => {
                    place.state = PlaceState::Looking;
                    place.woken.notify_one();
                    tasks = tasks.saturating_sub(place.max);
                }
                PlaceState::Looking => place.state = PlaceState::LookingAgain,
                PlaceState::LookingAgain => {}
            }
        }
    }

    /// Those who look for themselves look again.
    fn again(&mut self) {
        for place in self.places.values_mut().filter(|place| place.state == PlaceState::Looking) {
            place.state = PlaceState::LookingAgain;
        }
    }

    /// Looks at that instant; whether that is sooner than before.
    fn look_at(&mut self, at: DateTime<Utc>) -> bool {
        let is_sooner = self.look_at.is_none_or(|known| at < known);
        if is_sooner {
            self.look_at = Some(at);
        }
        is_sooner
    }
}

impl Place {
    fn wants(&self, topic: &Topic) -> bool {
        self.patterns.iter().any(|pattern| pattern.matches(topic))
    }
}

/// A worker at the desk; leaves when it is dropped.
pub(crate) struct Visit {
    desk: PullDesk,
    number: u64,
    ask: Ask,
    woken: Arc<Notify>,
}

impl Visit {
    /// Claims what is due. `remember` says how the answer is kept, if anything is claimed.
    ///
    /// # Errors
    /// When the store does not answer.
    pub(crate) async fn claim(
        &self,
        remember: impl Fn() -> Option<Remember<[Task]>>,
    ) -> Result<Reply<Delivery>, StoreError> {
        let desk = &self.desk.0;
        let mut due = desk.pullable(&self.ask.patterns).await?;
        let now = desk.parts.time.now();
        {
            let mut waiting = desk.waiting();
            if due.iter().filter_map(|(pending, _)| pending.next_due_at).any(|at| waiting.look_at(at)) {
                desk.rung.notify_one();
            }
        }
        due.retain(|(pending, _)| pending.due > 0);
        if due.len() > TOPICS_AT_ONCE {
            // Each beginning with another, so that none is always last.
            let first = usize::try_from(now.timestamp_micros().unsigned_abs()).unwrap_or(0) % due.len();
            due.rotate_left(first);
        }
        let mut delivery = Delivery::nothing(&self.desk);
        for some in due.chunks(TOPICS_AT_ONCE) {
            let request = PullRequest {
                node: desk.parts.node,
                lease_seconds: self.ask.lease_seconds,
                topics: some.iter().map(|(_, terms)| terms.clone()).collect(),
                max: self.ask.max,
                max_bytes: BYTES,
            };
            match self.pull(request, remember()).await? {
                Reply::Made(pulled) if pulled.tasks.is_empty() => {}
                Reply::Made(pulled) => {
                    delivery = pulled;
                    break;
                }
                replayed => return Ok(replayed),
            }
        }
        let is_full = delivery.tasks.len() >= self.ask.max as usize;
        let mut waiting = desk.waiting();
        if is_full && waiting.places.len() > 1 {
            // There may be more, for somebody else.
            waiting.look = true;
            desk.rung.notify_one();
        } else if delivery.tasks.is_empty() && !due.is_empty() && waiting.look_at(now + BLOCKED) {
            desk.rung.notify_one();
        }
        drop(waiting);
        Ok(Reply::Made(delivery))
    }

    /// Claims in a task of its own: one that was begun is brought to its end, and its tasks are not forgotten.
    async fn pull(
        &self,
        request: PullRequest,
        remember: Option<Remember<[Task]>>,
    ) -> Result<Reply<Delivery>, StoreError> {
        let desk = self.desk.clone();
        let claiming = tokio::spawn(async move {
            let can_come_again = remember.is_some();
            match desk.0.parts.store.pull(&request, remember).await? {
                Reply::Made(pulled) => {
                    if let Some(at) = pulled.allowed_at
                        && desk.0.waiting().look_at(at)
                    {
                        desk.0.rung.notify_one();
                    }
                    if !pulled.tasks.is_empty() {
                        desk.0.parts.wake.lease_made(request.lease());
                    }
                    Ok(Reply::Made(Delivery { tasks: pulled.tasks, desk, is_settled: can_come_again }))
                }
                Reply::Replayed(answer) => Ok(Reply::Replayed(answer)),
            }
        });
        claiming.await.unwrap_or_else(|error| Err(StoreError::Broken(format!("a claim broke off: {error}"))))
    }

    /// Rests until somebody thinks that there is something to claim.
    pub(crate) async fn rest(&self) {
        {
            let mut waiting = self.desk.0.waiting();
            let Some(place) = waiting.places.get_mut(&self.number) else { return };
            if place.state == PlaceState::LookingAgain {
                place.state = PlaceState::Looking;
                return;
            }
            place.state = PlaceState::Resting;
        }
        self.woken.notified().await;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut waiting = self.desk.0.waiting();
        let left = waiting.places.remove(&self.number);
        gauge!("punctual_workers").set(waiting.places.len() as f64);
        if left.is_some_and(|place| place.state != PlaceState::Resting) && !waiting.places.is_empty() {
            // It may have been woken for something that it did not take.
            waiting.look = true;
            self.desk.0.rung.notify_one();
        }
    }
}

/// Claimed tasks on their way to a worker; handed back if they do not get there.
pub(crate) struct Delivery {
    pub(crate) tasks: Vec<Task>,
    desk: PullDesk,
    is_settled: bool,
}

impl Delivery {
    fn nothing(desk: &PullDesk) -> Self {
        Self { tasks: Vec::new(), desk: desk.clone(), is_settled: true }
    }

    /// They are on the wire, as far as anybody can tell.
    pub(crate) fn arrived(mut self) {
        self.is_settled = true;
    }

    /// Nobody may have them: they are handed back, also if the same call could come again.
    pub(crate) fn refused(mut self) {
        self.is_settled = false;
    }
}

impl Drop for Delivery {
    fn drop(&mut self) {
        if self.is_settled || self.tasks.is_empty() {
            return;
        }
        let hand_back =
            |task: &Task| Settling { task_id: task.id, epoch: task.epoch, settlement: Settlement::HandedBack };
        let (settlings, desk) = (self.tasks.iter().map(hand_back).collect::<Vec<_>>(), self.desk.clone());
        // Without a runtime there is nobody left to do it: the leases end by themselves.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            let count = settlings.len();
            match desk.0.parts.store.settle(settlings).await {
                Ok(_) => {
                    debug!(count, "a worker has gone or may not have its tasks, they are handed back");
                    desk.0.parts.wake.tasks_changed();
                    desk.ring();
                }
                Err(error) => {
                    warn!(%error, count, "tasks of a worker not handed back, their leases must end by themselves")
                }
            }
        });
    }
}
