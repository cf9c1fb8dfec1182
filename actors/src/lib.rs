//! The running scheduler: a supervised tree of actors around one store.
//!
//! ```text
//! Supervisor   restarts what fails, one at a time; starts and stops in order
//! ├─ Elector     whether this node leads
//! ├─ Ticker      leader only: due schedules → fires and their tasks
//! ├─ Settler     outcomes → batched, fenced writes
//! ├─ Claimer     due tasks → claims, never more than the free slots
//! ├─ Reconciler  expired leases put right, missed fires noted, alerts raised, old rows removed
//! ├─ Notifier    messages of the outbox → e-mail and whatever else sends them
//! └─ Dispatcher  one per topic: slots, rate; keeps leases alive
//!     └─ slot      a handler actor: one attempt at a time
//! ```
//!
//! Work flows one way: the Ticker only ever writes tasks; the Claimer hands claimed tasks to Dispatchers, those to their slots, and outcomes go to the
//! Settler. What is due as it is written may come to its Dispatcher from the writer, in a slot that the Claimer lent. Back-pressure is credit: Dispatchers say how many slots are free, and the Claimer claims no more than that.
//! No actor knows what the database does not, except outcomes on their way to be settled, which a crash turns into
//! another attempt.

mod alerting;
mod announcer;
mod attempt;
mod audience;
mod claimer;
mod counter;
mod defaults;
mod dispatcher;
mod elector;
mod host;
mod mailbox;
mod meters;
mod notifier;
mod reconciler;
mod sending;
mod serving;
mod settler;
mod slot;
mod store_clock;
mod supervisor;
mod ticker;
mod wake;
mod watch;

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::alert::Address;
use punctual_domain::clock::Clock;
use punctual_domain::coordination::Coordination;
use punctual_domain::delivery::Transports;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::store::{Store, StoreError};
use punctual_domain::task::NewTask;
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::Topic;
use ractor::ActorRef;
use tokio::sync::Notify;

pub use announcer::Announcer;
pub use counter::Begun;
pub use defaults::{add_schedules, add_topics};
pub use mailbox::Mailbox;
pub use meters::{OTHER_TOPICS, Origin, TopicMeters, count_ended, count_fires, topic_label};
pub use serving::{Carried, Carrier, Handlers};
pub use supervisor::{ActorStatus, Failure};

use counter::Counter;
use mailbox::Handled;
use supervisor::{Supervisor, SupervisorMessage};

/// All that the tree stands on.
#[derive(Clone)]
pub struct Deps {
    /// The truth.
    pub store: Arc<dyn Store>,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// The zone rules that schedules are read with.
    pub zones: ZoneDatabase,
    /// Who leads.
    pub coordination: Arc<dyn Coordination>,
    /// This process.
    pub node: NodeId,
    /// The handlers and listeners its plugins registered.
    pub handlers: Handlers,
    /// What its messages are sent through.
    pub transports: Transports,
    /// Where alerts go; they are only logged if that is nowhere.
    pub alerts: Vec<Address>,
    /// How it runs.
    pub settings: Settings,
    /// Told whenever attempts began or tasks ended here.
    pub happened: Arc<Notify>,
}

/// How the tree runs.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The most tasks one claim takes.
    pub max_tasks_per_poll: u32,
    /// How long the Claimer sleeps at the most when nothing wakes it.
    pub poll_interval: Duration,
    /// How long a lease lasts.
    pub lease: Duration,
    /// How often leases are extended.
    pub heartbeat: Duration,
    /// How long the Reconciler sleeps at the most.
    pub reconcile_interval: Duration,
    /// How often leadership is renewed.
    pub leader_heartbeat: Duration,
    /// How late an instant of a schedule may be found and still just fire.
    pub misfire_threshold: Duration,
    /// How long ended tasks are kept.
    pub retention: Duration,
    /// How long a message may take to be sent before another node sends it again.
    pub message_lease: Duration,
    /// How long a Dispatcher with nothing to do lives on.
    pub idle_dispatcher: Duration,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            max_tasks_per_poll: 500,
            poll_interval: Duration::from_secs(900),
            lease: Duration::from_secs(30),
            heartbeat: Duration::from_secs(10),
            reconcile_interval: Duration::from_secs(5),
            leader_heartbeat: Duration::from_secs(5),
            misfire_threshold: Duration::from_secs(30),
            retention: Duration::from_secs(30 * 24 * 60 * 60),
            message_lease: Duration::from_secs(120),
            idle_dispatcher: Duration::from_secs(30),
        }
    }
}

/// Why the tree did not start or did not stop in order.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// An actor could not be started.
    #[error("an actor could not be started: {0}")]
    Start(String),
    /// The tree gave up: an actor failed more often than its budget allows.
    #[error("the actor tree gave up")]
    GaveUp,
}

/// Starts the tree.
///
/// # Errors
/// When an actor cannot be started.
pub async fn start(deps: Deps) -> Result<Running, TreeError> {
    // What plugins write wakes the tree, which is not there yet.
    let hints = Arc::new(OnceLock::new());
    let found = Arc::clone(&hints);
    let deps =
        Deps { handlers: deps.handlers.clone().connected(&deps, Arc::new(move || found.get().cloned())), ..deps };
    let counter = Counter::default();
    let (store, node, lease) = (deps.store.clone(), deps.node, deps.settings.lease);
    let warm = Arc::clone(&store);
    tokio::spawn(async move { warm.warm_up().await });
    let handled = Handled::default();
    let root = Supervisor { counter: counter.clone() };
    let (supervisor, ended) =
        mailbox::spawn(root, deps, handled.clone()).await.map_err(|error| TreeError::Start(error.to_string()))?;
    let running = Running { hints: Hints { supervisor, handled, counter, store, node, lease }, ended };
    // Nobody else sets it.
    let _ = hints.set(running.hints());
    Ok(running)
}

/// What plugins use of a node outside of handlers, as their HTTP routes do. `hints` leads to the tree, if there is one at
/// the moment.
pub fn plugin_engine(
    deps: &Deps,
    hints: impl Fn() -> Option<Hints> + Send + Sync + 'static,
) -> Arc<dyn punctual_sdk::engine::Engine> {
    deps.handlers.engine(deps, Arc::new(hints))
}

/// A tree that runs.
pub struct Running {
    hints: Hints,
    ended: tokio::task::JoinHandle<()>,
}

impl Running {
    /// A handle for those who write tasks.
    pub fn hints(&self) -> Hints {
        self.hints.clone()
    }

    /// Has everything told that the tree is told about tasks, for those outside who wait for them. `tell` must be quick.
    pub fn overhear(&self, tell: impl Fn(&Overheard) + Send + Sync + 'static) {
        self.hints.send(SupervisorMessage::Overhear(Box::new(tell)));
    }

    /// What each actor of the tree is doing.
    pub async fn status(&self) -> Vec<ActorStatus> {
        self.hints.actors().await
    }

    /// Stops ticking and claiming, lets attempts finish until `within` has passed, hands the rest back, and ends the tree.
    ///
    /// # Errors
    /// When the tree had given up already.
    pub async fn drain(self, within: Duration) -> Result<(), TreeError> {
        self.hints.supervisor.cast(SupervisorMessage::Drain { within }).map_err(|_| TreeError::GaveUp)?;
        self.ended.await.map_err(|_| TreeError::GaveUp)
    }

    /// Returns when the tree has given up.
    pub async fn gave_up(&mut self) {
        // However it ended, it has.
        let _ = (&mut self.ended).await;
    }
}

/// What the tree was told about tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Overheard {
    /// Something may be due that was not, in any topic.
    Tasks,
    /// A task was written that is due at that instant.
    Task(Topic, DateTime<Utc>),
    /// Definitions of topics changed.
    Topics,
    /// A task was cancelled: if it runs, its attempt is to stop.
    Cancelled(TaskId),
}

/// The tree, as those know it who write tasks: it is told that something may have changed, or given what it can begin at
/// once. Losing a hint costs latency only.
#[derive(Clone)]
pub struct Hints {
    supervisor: ActorRef<SupervisorMessage>,
    /// How much it has handled.
    handled: Handled,
    counter: Counter,
    store: Arc<dyn Store>,
    node: NodeId,
    lease: Duration,
}

impl Hints {
    /// Writes a task and begins it at once, if it is due now, a slot is free for it here and nothing of its topic waits;
    /// nobody needs to be told of it then. `None`: it is to be written like any other.
    ///
    /// It is begun also if the caller does not wait for the answer.
    pub async fn begin(&self, task: &NewTask) -> Option<Result<Begun, StoreError>> {
        let ticket = self.counter.ticket(task)?;
        let (store, task, node, lease) = (self.store.clone(), task.clone(), self.node, self.lease);
        let written = tokio::spawn(async move { ticket.write(&*store, task, node, lease).await });
        Some(written.await.unwrap_or_else(|error| Err(StoreError::Broken(error.to_string()))))
    }

    /// What each actor of the tree is doing, the Supervisor first; nobody if it does not answer.
    pub async fn actors(&self) -> Vec<ActorStatus> {
        let status = |reply| SupervisorMessage::Status { question: self.handled.question(), reply };
        ractor::call_t!(self.supervisor, status, 2_000).unwrap_or_default()
    }

    /// Tasks were written, somewhere.
    pub fn tasks_written(&self) {
        self.send(SupervisorMessage::TasksWritten);
    }

    /// A task was written, and is due at that instant.
    pub fn task_written(&self, topic: Topic, run_at: DateTime<Utc>) {
        self.send(SupervisorMessage::TaskWritten { topic, run_at });
    }

    /// A task was cancelled: if it runs, its attempt is to stop.
    pub fn task_cancelled(&self, id: TaskId) {
        self.send(SupervisorMessage::TaskCancelled(id));
    }

    /// Somebody outside the tree holds a lease of that length.
    pub fn lease_made(&self, length: Duration) {
        self.send(SupervisorMessage::LeaseMade(length));
    }

    /// Definitions of topics changed.
    pub fn topics_changed(&self) {
        self.counter.shut();
        self.send(SupervisorMessage::TopicsChanged);
    }

    /// Schedules were written, somewhere.
    pub fn schedules_changed(&self) {
        self.send(SupervisorMessage::SchedulesChanged);
    }

    /// Messages were posted, somewhere.
    pub fn messages_posted(&self) {
        self.send(SupervisorMessage::MessagesPosted);
    }

    /// Another node may lead than did.
    pub fn leadership_changed(&self) {
        self.send(SupervisorMessage::LeadershipChanged);
    }

    fn send(&self, message: SupervisorMessage) {
        // A tree that is gone needs no hint.
        let _ = self.supervisor.cast(message);
    }
}
