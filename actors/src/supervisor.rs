//! The Supervisor: the tree, who restarts, how often, and the order of stopping.
//!
//! - Start order: Notifier, Settler, Claimer, Reconciler, Ticker, Elector; Dispatchers as the Claimer finds topics.
//! - One for one: what fails is started again by itself, after a wait that doubles while failures are close together.
//!   A Dispatcher is not restarted but forgotten: the Claimer asks for it again when its topic has due tasks.
//! - The budget: more than 10 failures in a minute end the tree, and with it the process, so that the platform starts
//!   it afresh. A store that is away is no failure; actors wait for it.
//! - Drain order: the Ticker stops, the Elector resigns, Claimer and Reconciler stop; Dispatchers finish what runs until the deadline and hand the rest back;
//!   the Settler writes what is left; the Notifier ends what it is sending.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::{BoxFuture, join_all};
use punctual_domain::fire::FireRules;
use punctual_domain::id::TaskId;
use punctual_domain::topic::Topic;
use ractor::{Actor, ActorCell, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort, SupervisionEvent};
use tokio::time::Instant;

use crate::claimer::{Claimer, ClaimerMessage};
use crate::counter::Counter;
use crate::dispatcher::{Dispatcher, DispatcherMessage, Start};
use crate::elector::{Elector, ElectorMessage};
use crate::mailbox::{Mailbox, Post, Question};
use crate::notifier::{Notifier, NotifierMessage};
use crate::reconciler::{Reconciler, ReconcilerMessage};
use crate::serving::Server;
use crate::settler::{Settler, SettlerMessage};
use crate::ticker::{Ticker, TickerMessage};
use crate::{Deps, Overheard};

/// More failures than this within [`BUDGET_TIME`] end the tree.
const BUDGET: usize = 10;
const BUDGET_TIME: Duration = Duration::from_secs(60);
/// The wait before a failed actor starts again, doubled for each failure within the budget's time.
const FIRST_WAIT: Duration = Duration::from_millis(50);
/// How long after the hand-back Dispatchers may take to end; blocking handlers can ignore every signal.
const HAND_BACK_TIME: Duration = Duration::from_millis(1_500);
/// How long the Ticker may take to end its transaction, and the Elector to resign.
const RESIGN_TIME_MS: u64 = 2_000;
/// How long the last outcomes may take to be written.
const FLUSH_TIME_MS: u64 = 10_000;
/// How long messages on their way may take to be sent; what is not by then, another node or the next start sends.
const NOTIFY_TIME_MS: u64 = 10_000;

/// How somebody outside is told.
type Tell = Box<dyn Fn(&Overheard) + Send + Sync>;

pub(crate) enum SupervisorMessage {
    /// Start a Dispatcher for a topic.
    Serve { topic: Topic, server: Server },
    /// Start a failed actor again.
    Restart(Child),
    /// Tasks may be due that were not.
    TasksWritten,
    /// A task was written that is due at that instant.
    TaskWritten { topic: Topic, run_at: DateTime<Utc> },
    /// Outcomes pile up.
    SettlerBehind,
    /// Outcomes are written again as they come.
    SettlerCaughtUp,
    /// A task was cancelled: if it runs, its attempt is to stop.
    TaskCancelled(TaskId),
    /// Definitions of topics changed.
    TopicsChanged,
    /// Schedules may be due that were not.
    SchedulesChanged,
    /// Messages may be due that were not.
    MessagesPosted,
    /// Somebody outside holds a lease of that length.
    LeaseMade(Duration),
    /// Somebody outside wants to hear what we hear.
    Overhear(Tell),
    /// Another node may lead than did.
    LeadershipChanged,
    /// This node leads, until then for certain.
    Leads { until: Option<Instant> },
    /// This node does not lead.
    Follows,
    /// What is everybody doing?
    Status { question: Question, reply: RpcReplyPort<Vec<ActorStatus>> },
    /// Stop in order.
    Drain { within: Duration },
    /// The drain's deadline has passed.
    HandBack,
    /// Whoever has not ended by now will not.
    Flush,
    /// The last outcomes are written, and the last messages sent.
    Flushed,
    /// Have an actor fail, by its name.
    #[cfg(test)]
    Fail(String),
}

/// The actors there is one of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Child {
    Settler,
    Claimer,
    Reconciler,
    Ticker,
    Elector,
    Notifier,
}

impl Child {
    const ALL: [Self; 6] =
        [Self::Settler, Self::Claimer, Self::Reconciler, Self::Ticker, Self::Elector, Self::Notifier];

    fn name(self) -> &'static str {
        match self {
            Self::Settler => "settler",
            Self::Claimer => "claimer",
            Self::Reconciler => "reconciler",
            Self::Ticker => "ticker",
            Self::Elector => "elector",
            Self::Notifier => "notifier",
        }
    }
}

/// What is known of an actor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ActorStatus {
    /// Its name: `claimer`, or `dispatcher mail`.
    pub name: String,
    /// How often it was started again.
    pub restarts: u64,
    /// How it last failed.
    pub failure: Option<Failure>,
    /// What its mailbox looks like; `None` if it is too busy to say.
    pub mailbox: Option<Mailbox>,
}

/// How an actor failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// When, by this machine.
    pub failed_at: std::time::Instant,
    /// What with.
    pub error: String,
}

/// How often actors failed, and how they last did.
#[derive(Default)]
struct History(HashMap<String, (u64, Failure)>);

impl History {
    /// The Dispatchers of so many topics are remembered.
    const MOST: usize = 1_000;

    fn note(&mut self, actor: String, failure: Failure) {
        if let Some((failures, last)) = self.0.get_mut(&actor) {
            *failures += 1;
            *last = failure;
        } else if self.0.len() < Self::MOST {
            self.0.insert(actor, (1, failure));
        }
    }

    fn status(&self, name: String) -> ActorStatus {
        let (restarts, failure) = self.0.get(&name).cloned().unzip();
        ActorStatus { name, restarts: restarts.unwrap_or(0), failure, mailbox: None }
    }
}

pub(crate) struct Supervisor {
    /// Where the Claimer lends free slots, whichever Claimer it is.
    pub(crate) counter: Counter,
}

pub(crate) struct State {
    deps: Deps,
    settler: Post<SettlerMessage>,
    claimer: Post<ClaimerMessage>,
    reconciler: Post<ReconcilerMessage>,
    ticker: Post<TickerMessage>,
    elector: Post<ElectorMessage>,
    notifier: Post<NotifierMessage>,
    dispatchers: HashMap<Topic, Post<DispatcherMessage>>,
    budget: Budget,
    history: History,
    overhear: Option<Tell>,
    phase: Phase,
}

/// When actors failed lately.
#[derive(Default)]
struct Budget(VecDeque<Instant>);

impl Budget {
    /// Counts a failure; how long to wait before the actor starts again, `None` if that was one too many.
    fn spend(&mut self, now: Instant) -> Option<Duration> {
        self.0.push_back(now);
        self.0.retain(|failed_at| now - *failed_at < BUDGET_TIME);
        (self.0.len() <= BUDGET).then(|| FIRST_WAIT * 2u32.pow(self.0.len() as u32 - 1))
    }
}

/// How far stopping has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    Running,
    Draining,
    Flushing,
}

impl Actor for Supervisor {
    type Msg = SupervisorMessage;
    type State = State;
    type Arguments = Deps;

    async fn pre_start(&self, myself: ActorRef<SupervisorMessage>, deps: Deps) -> Result<State, ActorProcessingErr> {
        let notifier = start_notifier(&deps, &myself).await?;
        let settler = start_settler(&deps, &myself).await?;
        let claimer = start_claimer(&deps, &self.counter, &myself).await?;
        let reconciler = start_reconciler(&deps, &myself).await?;
        let ticker = start_ticker(&deps, &myself).await?;
        let elector = start_elector(&deps, &myself).await?;
        for child in Child::ALL {
            metrics::counter!("punctual_actor_restarts_total", "actor" => child.name()).increment(0);
        }
        Ok(State {
            deps,
            settler,
            claimer,
            reconciler,
            ticker,
            elector,
            notifier,
            dispatchers: HashMap::new(),
            budget: Budget::default(),
            history: History::default(),
            overhear: None,
            phase: Phase::Running,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SupervisorMessage>,
        message: SupervisorMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SupervisorMessage::Serve { topic, server } => serve(&myself, state, topic, server).await?,
            SupervisorMessage::Restart(child) => restart(&myself, &self.counter, state, child).await?,
            SupervisorMessage::TasksWritten => {
                tell_outside(state, || Overheard::Tasks);
                tell_claimer(state, ClaimerMessage::Look);
            }
            SupervisorMessage::TaskWritten { topic, run_at } => {
                tell_outside(state, || Overheard::Task(topic.clone(), run_at));
                tell_claimer(state, ClaimerMessage::Written { topic, run_at });
            }
            SupervisorMessage::SettlerBehind => tell_claimer(state, ClaimerMessage::SettlerBehind),
            SupervisorMessage::SettlerCaughtUp => tell_claimer(state, ClaimerMessage::SettlerCaughtUp),
            SupervisorMessage::TopicsChanged => {
                tell_outside(state, || Overheard::Topics);
                tell_claimer(state, ClaimerMessage::TopicsChanged);
            }
            SupervisorMessage::LeaseMade(length) => {
                // One that failed finds the lease when it is back.
                let _ = state.reconciler.cast(ReconcilerMessage::LeaseMade(length));
            }
            SupervisorMessage::Overhear(tell) => state.overhear = Some(tell),
            SupervisorMessage::SchedulesChanged => tell_ticker(state, TickerMessage::Look),
            SupervisorMessage::MessagesPosted => {
                // One that failed looks for itself when it is back.
                let _ = state.notifier.cast(NotifierMessage::Look);
            }
            SupervisorMessage::Leads { until } => tell_ticker(state, TickerMessage::Leads { until }),
            SupervisorMessage::Follows => tell_ticker(state, TickerMessage::Follows),
            SupervisorMessage::LeadershipChanged => tell_elector(state, ElectorMessage::ElectAnew),
            SupervisorMessage::TaskCancelled(id) => {
                tell_outside(state, || Overheard::Cancelled(id));
                tell_dispatchers(state, || DispatcherMessage::TaskCancelled(id));
            }
            SupervisorMessage::Status { question, reply } => {
                let status = status(state, question.answer());
                tokio::spawn(async move {
                    // Whoever asked may have stopped waiting.
                    let _ = reply.send(status.await);
                });
            }
            SupervisorMessage::Drain { within } => drain(&myself, state, within).await,
            SupervisorMessage::HandBack => {
                tell_dispatchers(state, || DispatcherMessage::HandBack);
                later(&myself, HAND_BACK_TIME, SupervisorMessage::Flush);
            }
            SupervisorMessage::Flush => flush(&myself, state),
            SupervisorMessage::Flushed => myself.stop(None),
            #[cfg(test)]
            SupervisorMessage::Fail(actor) => tests::fail(state, &actor),
        }
        Ok(())
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<SupervisorMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match event {
            SupervisionEvent::ActorFailed(actor, error) => failed(&myself, state, &actor, &error.to_string()),
            SupervisionEvent::ActorTerminated(actor, _, _) => forget_dispatcher(&myself, state, actor.get_id()),
            _ => Ok(()),
        }
    }
}

async fn start_settler(
    deps: &Deps,
    myself: &ActorRef<SupervisorMessage>,
) -> Result<Post<SettlerMessage>, ActorProcessingErr> {
    let settler = Settler {
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        supervisor: myself.clone(),
        happened: deps.happened.clone(),
    };
    Ok(Post::spawn_linked(settler, (), myself.get_cell()).await?)
}

async fn start_claimer(
    deps: &Deps,
    counter: &Counter,
    myself: &ActorRef<SupervisorMessage>,
) -> Result<Post<ClaimerMessage>, ActorProcessingErr> {
    let claimer = Claimer {
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        node: deps.node,
        handlers: deps.handlers.clone(),
        settings: deps.settings,
        supervisor: myself.clone(),
        happened: deps.happened.clone(),
        counter: counter.clone(),
    };
    Ok(Post::spawn_linked(claimer, (), myself.get_cell()).await?)
}

async fn start_reconciler(
    deps: &Deps,
    myself: &ActorRef<SupervisorMessage>,
) -> Result<Post<ReconcilerMessage>, ActorProcessingErr> {
    let reconciler = Reconciler {
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        alerts: deps.alerts.clone(),
        checks: deps.handlers.checks().into(),
        settings: deps.settings,
        supervisor: myself.clone(),
    };
    Ok(Post::spawn_linked(reconciler, (), myself.get_cell()).await?)
}

async fn start_ticker(
    deps: &Deps,
    myself: &ActorRef<SupervisorMessage>,
) -> Result<Post<TickerMessage>, ActorProcessingErr> {
    let misfire_threshold = TimeDelta::from_std(deps.settings.misfire_threshold)?;
    let ticker = Ticker {
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        rules: FireRules { zones: deps.zones.clone(), misfire_threshold },
        supervisor: myself.clone(),
    };
    Ok(Post::spawn_linked(ticker, (), myself.get_cell()).await?)
}

async fn start_elector(
    deps: &Deps,
    myself: &ActorRef<SupervisorMessage>,
) -> Result<Post<ElectorMessage>, ActorProcessingErr> {
    let elector = Elector {
        node: deps.node,
        coordination: deps.coordination.clone(),
        store: deps.store.clone(),
        heartbeat: deps.settings.leader_heartbeat,
        tz_version: deps.zones.version().to_owned(),
        supervisor: myself.clone(),
    };
    Ok(Post::spawn_linked(elector, (), myself.get_cell()).await?)
}

async fn start_notifier(
    deps: &Deps,
    myself: &ActorRef<SupervisorMessage>,
) -> Result<Post<NotifierMessage>, ActorProcessingErr> {
    let notifier = Notifier {
        store: deps.store.clone(),
        clock: deps.clock.clone(),
        transports: deps.transports.clone(),
        settings: deps.settings,
    };
    Ok(Post::spawn_linked(notifier, (), myself.get_cell()).await?)
}

async fn serve(
    myself: &ActorRef<SupervisorMessage>,
    state: &mut State,
    topic: Topic,
    server: Server,
) -> Result<(), ActorProcessingErr> {
    if state.phase != Phase::Running || state.dispatchers.contains_key(&topic) {
        return Ok(());
    }
    let dispatcher = Dispatcher {
        store: state.deps.store.clone(),
        clock: state.deps.clock.clone(),
        settings: state.deps.settings,
        topic: topic.clone(),
    };
    let start = Start { server, settler: state.settler.clone(), claimer: state.claimer.clone() };
    let dispatcher = Post::spawn_linked(dispatcher, start, myself.get_cell()).await?;
    state.dispatchers.insert(topic, dispatcher);
    Ok(())
}

/// Counts a failure, and starts the actor again after a while or gives up.
fn failed(
    myself: &ActorRef<SupervisorMessage>,
    state: &mut State,
    actor: &ActorCell,
    error: &str,
) -> Result<(), ActorProcessingErr> {
    let id_of = |child: &Child| match child {
        Child::Settler => state.settler.get_id(),
        Child::Claimer => state.claimer.get_id(),
        Child::Reconciler => state.reconciler.get_id(),
        Child::Ticker => state.ticker.get_id(),
        Child::Elector => state.elector.get_id(),
        Child::Notifier => state.notifier.get_id(),
    };
    let child = Child::ALL.into_iter().find(|child| id_of(child) == actor.get_id());
    let name = child.map_or("dispatcher", Child::name);
    tracing::error!(actor = name, error, "actor failed");
    metrics::counter!("punctual_actor_restarts_total", "actor" => name).increment(1);

    let now = Instant::now();
    let Some(wait) = state.budget.spend(now) else {
        return Err(format!("{BUDGET} failures within {BUDGET_TIME:?}, the last of the {name}: {error}").into());
    };
    let failure = Failure { failed_at: now.into_std(), error: error.to_owned() };
    match child {
        Some(child) => {
            state.history.note(name.to_owned(), failure);
            later(myself, wait, SupervisorMessage::Restart(child));
            Ok(())
        }
        None => {
            if let Some(topic) = topic_of(state, actor.get_id()) {
                state.history.note(dispatcher_name(&topic), failure);
            }
            forget_dispatcher(myself, state, actor.get_id())
        }
    }
}

async fn restart(
    myself: &ActorRef<SupervisorMessage>,
    counter: &Counter,
    state: &mut State,
    child: Child,
) -> Result<(), ActorProcessingErr> {
    if state.phase != Phase::Running && child != Child::Settler {
        return Ok(());
    }
    match child {
        Child::Settler => {
            state.settler = start_settler(&state.deps, myself).await?;
            // Nothing waits in a new one.
            tell_claimer(state, ClaimerMessage::SettlerCaughtUp);
        }
        Child::Claimer => state.claimer = start_claimer(&state.deps, counter, myself).await?,
        Child::Reconciler => state.reconciler = start_reconciler(&state.deps, myself).await?,
        Child::Ticker => {
            state.ticker = start_ticker(&state.deps, myself).await?;
            // A new one does not know whether we lead.
            tell_elector(state, ElectorMessage::Elect);
        }
        Child::Elector => {
            // Until the new one has found out, nobody says that we lead.
            tell_ticker(state, TickerMessage::Follows);
            state.elector = start_elector(&state.deps, myself).await?;
        }
        Child::Notifier => state.notifier = start_notifier(&state.deps, myself).await?,
    }
    tracing::info!(actor = child.name(), "actor started again");
    tell_dispatchers(state, || DispatcherMessage::Rewire {
        settler: state.settler.clone(),
        claimer: state.claimer.clone(),
    });
    Ok(())
}

fn forget_dispatcher(
    myself: &ActorRef<SupervisorMessage>,
    state: &mut State,
    id: ActorId,
) -> Result<(), ActorProcessingErr> {
    if let Some(topic) = topic_of(state, id) {
        state.dispatchers.remove(&topic);
        tell_claimer(state, ClaimerMessage::DispatcherEnded(id));
        if state.phase == Phase::Draining && state.dispatchers.is_empty() {
            flush(myself, state);
        }
    }
    Ok(())
}

fn topic_of(state: &State, dispatcher: ActorId) -> Option<Topic> {
    state.dispatchers.iter().find_map(|(topic, actor)| (actor.get_id() == dispatcher).then(|| topic.clone()))
}

async fn drain(myself: &ActorRef<SupervisorMessage>, state: &mut State, within: Duration) {
    if state.phase != Phase::Running {
        return;
    }
    state.phase = Phase::Draining;
    let asked_at = Instant::now();
    // One that failed ticks no more either, and its lead ends with its lease.
    let _ = ractor::call_t!(state.ticker, TickerMessage::Drain, RESIGN_TIME_MS);
    let _ = ractor::call_t!(state.elector, ElectorMessage::Resign, RESIGN_TIME_MS);
    state.reconciler.stop(None);
    // After its answer the Claimer hands over nothing more; one that failed does not either.
    let patience = within.clamp(Duration::from_secs(1), Duration::from_secs(30));
    let _ = ractor::call_t!(state.claimer, ClaimerMessage::Drain, patience.as_millis() as u64);
    tell_dispatchers(state, || DispatcherMessage::Drain);
    later(myself, within.saturating_sub(asked_at.elapsed()), SupervisorMessage::HandBack);
    if state.dispatchers.is_empty() {
        flush(myself, state);
    }
}

/// Lets the Settler write what it has and the Notifier end what it sends, then ends the tree.
fn flush(myself: &ActorRef<SupervisorMessage>, state: &mut State) {
    if state.phase == Phase::Flushing {
        return;
    }
    state.phase = Phase::Flushing;
    let (settler, notifier, myself) = (state.settler.clone(), state.notifier.clone(), myself.clone());
    tokio::spawn(async move {
        if ractor::call_t!(settler, SettlerMessage::Drain, FLUSH_TIME_MS).is_err() {
            tracing::error!("the last outcomes could not be written; their tasks will be attempted again");
        }
        if ractor::call_t!(notifier, NotifierMessage::Drain, NOTIFY_TIME_MS).is_err() {
            tracing::warn!("the last messages could not be sent; they will be sent again");
        }
        // One that is gone needs not be told to end.
        let _ = myself.cast(SupervisorMessage::Flushed);
    });
}

/// What is known of everybody; each is asked for its mailbox, and all of them at once.
fn status(state: &State, own: Mailbox) -> impl Future<Output = Vec<ActorStatus>> + use<> {
    let mut asked: Vec<(ActorStatus, BoxFuture<'static, Option<Mailbox>>)> = vec![(
        ActorStatus { name: "supervisor".to_owned(), restarts: 0, failure: None, mailbox: None },
        Box::pin(std::future::ready(Some(own))),
    )];
    for child in Child::ALL {
        let mailbox = match child {
            Child::Settler => state.settler.look(SettlerMessage::Probe),
            Child::Claimer => state.claimer.look(ClaimerMessage::Probe),
            Child::Reconciler => state.reconciler.look(ReconcilerMessage::Probe),
            Child::Ticker => state.ticker.look(TickerMessage::Probe),
            Child::Elector => state.elector.look(ElectorMessage::Probe),
            Child::Notifier => state.notifier.look(NotifierMessage::Probe),
        };
        asked.push((state.history.status(child.name().to_owned()), mailbox));
    }
    let mut dispatchers: Vec<_> = state.dispatchers.iter().collect();
    dispatchers.sort_unstable_by_key(|(topic, _)| *topic);
    for (topic, dispatcher) in dispatchers {
        asked.push((state.history.status(dispatcher_name(topic)), dispatcher.look(DispatcherMessage::Probe)));
    }
    join_all(asked.into_iter().map(|(status, mailbox)| async move { ActorStatus { mailbox: mailbox.await, ..status } }))
}

fn dispatcher_name(topic: &Topic) -> String {
    format!("dispatcher {topic}")
}

fn tell_outside(state: &State, heard: impl Fn() -> Overheard) {
    if let Some(tell) = &state.overhear {
        tell(&heard());
    }
}

fn tell_claimer(state: &State, message: ClaimerMessage) {
    // One that failed looks for itself when it is back.
    let _ = state.claimer.cast(message);
}

fn tell_ticker(state: &State, message: TickerMessage) {
    // One that failed looks for itself when it is back.
    let _ = state.ticker.cast(message);
}

fn tell_elector(state: &State, message: ElectorMessage) {
    // One that failed finds out by itself when it is back.
    let _ = state.elector.cast(message);
}

fn tell_dispatchers(state: &State, message: impl Fn() -> DispatcherMessage) {
    for dispatcher in state.dispatchers.values() {
        // One that is gone is forgotten by its own event.
        let _ = dispatcher.cast(message());
    }
}

/// Sends ourselves a message after a while.
fn later(myself: &ActorRef<SupervisorMessage>, wait: Duration, message: SupervisorMessage) {
    let myself = myself.clone();
    tokio::spawn(async move {
        tokio::time::sleep(wait).await;
        // One that is gone waits for nothing.
        let _ = myself.cast(message);
    });
}

#[cfg(test)]
mod tests;
