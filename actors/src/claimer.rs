//! The Claimer: due tasks become claims, never more than the free slots.
//!
//! Owns the credits: how many more tasks each Dispatcher can take. What wakes it: freed slots, written tasks, the
//! instant at which the next task is due, and the poll interval as a safety net. It never claims for a topic without
//! credit, and learns of topics that have due tasks but no Dispatcher yet by looking for them whenever it was woken by
//! anything but a freed slot.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::id::NodeId;
use punctual_domain::store::{ClaimRequest, Store, StoreError, Suspects, Want};
use punctual_domain::task::Task;
use punctual_domain::topic::{Topic, TopicDefinition};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};

use crate::Settings;
use crate::dispatcher::DispatcherMessage;
use crate::serving::{Handlers, server};
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;

/// How many topics one look for new ones reads at a time.
const TOPICS: u32 = 1_000;
/// Tasks that became due this long ago and were not claimed wait for something else than time.
const JUST_DUE: TimeDelta = TimeDelta::seconds(1);
/// How long to wait for a task that is due and was not claimed: another node is at it, or its turn has not come.
const SECOND_LOOK: TimeDelta = TimeDelta::milliseconds(20);
/// The first and the longest wait while the store is away.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(crate) enum ClaimerMessage {
    /// A Dispatcher can take so many more tasks.
    SlotsFreed { topic: Topic, slots: u32, dispatcher: ActorRef<DispatcherMessage> },
    /// A Dispatcher wants to end, unless tasks are on their way to it.
    Retiring { topic: Topic, dispatcher: ActorRef<DispatcherMessage> },
    /// A Dispatcher has ended.
    DispatcherEnded(Topic),
    /// Something may be due that was not.
    Look,
    /// Definitions of topics changed.
    TopicsChanged,
    /// Attempts that had lost one before ended: others of their kind may go.
    SuspectEnded,
    /// Claim now.
    Claim,
    /// Claim no more.
    Drain(RpcReplyPort<()>),
}

/// Configuration of the Claimer.
pub(crate) struct Claimer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: NodeId,
    pub(crate) handlers: Handlers,
    pub(crate) settings: Settings,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

pub(crate) struct State {
    lanes: HashMap<Topic, Lane>,
    /// Topics whose Dispatcher was asked for and has not announced itself.
    awaited: HashSet<Topic>,
    definitions: Vec<TopicDefinition>,
    definitions_known: bool,
    /// Tasks out there that have lost an attempt before; they run one at a time.
    suspects: u32,
    /// Whether topics without a Dispatcher are looked for in the next pass.
    look: bool,
    /// A `Claim` to ourselves is on its way.
    claim_queued: bool,
    /// What must be added to our clock to get the store's.
    offset: TimeDelta,
    offset_measured_at: Option<DateTime<Utc>>,
    /// The due instant that last made us claim again at once.
    hurried_for: Option<DateTime<Utc>>,
    wait: Duration,
    alarm: Alarm,
    draining: bool,
}

/// A Dispatcher and what it can still take.
struct Lane {
    dispatcher: ActorRef<DispatcherMessage>,
    credit: u32,
}

impl Actor for Claimer {
    type Msg = ClaimerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<ClaimerMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        myself.cast(ClaimerMessage::Look)?;
        Ok(State {
            lanes: HashMap::new(),
            awaited: HashSet::new(),
            definitions: Vec::new(),
            definitions_known: false,
            suspects: 0,
            look: true,
            claim_queued: false,
            offset: TimeDelta::zero(),
            offset_measured_at: None,
            hurried_for: None,
            wait: FIRST_WAIT,
            alarm: Alarm::default(),
            draining: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ClaimerMessage>,
        message: ClaimerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ClaimerMessage::SlotsFreed { topic, slots, dispatcher } => {
                state.awaited.remove(&topic);
                let lane =
                    state.lanes.entry(topic).or_insert_with(|| Lane { dispatcher: dispatcher.clone(), credit: 0 });
                if lane.dispatcher.get_id() != dispatcher.get_id() {
                    *lane = Lane { dispatcher, credit: 0 };
                }
                lane.credit += slots;
                self.queue_claim(&myself, state);
            }
            ClaimerMessage::Retiring { topic, dispatcher } => {
                // Messages of one sender arrive in order: whatever was handed to it before is there before this.
                state.lanes.remove(&topic);
                let _ = dispatcher.cast(DispatcherMessage::Retire);
            }
            ClaimerMessage::DispatcherEnded(topic) => {
                state.awaited.remove(&topic);
                state.lanes.retain(|_, lane| !matches!(lane.dispatcher.get_status(), ractor::ActorStatus::Stopped));
                state.look = true;
                self.queue_claim(&myself, state);
            }
            ClaimerMessage::Look => {
                state.look = true;
                self.queue_claim(&myself, state);
            }
            ClaimerMessage::TopicsChanged => {
                state.definitions_known = false;
                state.look = true;
                self.queue_claim(&myself, state);
            }
            ClaimerMessage::SuspectEnded => {
                state.suspects = state.suspects.saturating_sub(1);
                state.look = true;
                self.queue_claim(&myself, state);
            }
            ClaimerMessage::Claim => {
                state.claim_queued = false;
                self.claim(&myself, state).await;
            }
            ClaimerMessage::Drain(reply) => {
                state.draining = true;
                state.alarm.clear();
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
        }
        Ok(())
    }
}

impl Claimer {
    /// Lets everything that is already in the mailbox be counted before the claim.
    fn queue_claim(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        if !state.claim_queued && !state.draining && myself.cast(ClaimerMessage::Claim).is_ok() {
            state.claim_queued = true;
        }
    }

    async fn claim(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        if state.draining {
            return;
        }
        match self.pass(state).await {
            Ok(Wake::AtOnce) => self.queue_claim(myself, state),
            Ok(Wake::At(at)) => state.alarm.set(&self.clock, at, myself, ClaimerMessage::Look),
            Err(error) => {
                tracing::warn!(%error, "tasks could not be claimed");
                let again_at = self.clock.now() + state.wait;
                state.look = true;
                state.wait = (state.wait * 2).min(LONGEST_WAIT);
                state.alarm.set(&self.clock, again_at, myself, ClaimerMessage::Look);
                return;
            }
        }
        state.wait = FIRST_WAIT;
    }

    /// One round: learn, look, claim, hand over; then when to wake next.
    async fn pass(&self, state: &mut State) -> Result<Wake, StoreError> {
        self.learn(state).await?;
        let looked = std::mem::take(&mut state.look);
        if looked {
            self.look_for_topics(state).await.inspect_err(|_| state.look = true)?;
        }
        let wants = self.wants(state);
        let wanted: u32 = wants.iter().map(|want| want.slots).sum();
        let mut claimed = 0;
        if wanted > 0 {
            let request = ClaimRequest {
                node: self.node,
                lease: self.settings.lease,
                wants,
                suspects: Suspects::AtMost(1u32.saturating_sub(state.suspects)),
            };
            let sent_at = tokio::time::Instant::now();
            let tasks = self.store.claim(&request).await?;
            claimed = tasks.len() as u32;
            self.hand_over(state, tasks, sent_at);
        }
        // A full claim means there may be more; freed slots wake us when there is credit again.
        if claimed > 0 && claimed == wanted && state.lanes.values().any(|lane| lane.credit > 0) {
            return Ok(Wake::AtOnce);
        }
        let now = self.clock.now();
        let poll_at = now + self.settings.poll_interval;
        let next_due_at = self.store.next_due_at(now + state.offset - JUST_DUE).await?;
        let Some(due_at) = next_due_at.map(|due_at| due_at - state.offset) else { return Ok(Wake::At(poll_at)) };
        if due_at > self.clock.now() {
            return Ok(Wake::At(due_at.min(poll_at)));
        }
        // It became due since the claim; one that is still there after another claim must not keep us spinning.
        if state.hurried_for.replace(due_at) != Some(due_at) {
            return Ok(Wake::AtOnce);
        }
        Ok(Wake::At((now + SECOND_LOOK).min(poll_at)))
    }

    /// Learns the topics' definitions when they changed, and the store's clock every minute.
    async fn learn(&self, state: &mut State) -> Result<(), StoreError> {
        let now = self.clock.now();
        if state.offset_measured_at.is_none_or(|at| now - at > TimeDelta::minutes(1)) {
            let store_now = self.store.now().await?;
            state.offset = store_now - self.clock.now();
            state.offset_measured_at = Some(now);
            state.definitions_known = false;
        }
        if !state.definitions_known {
            state.definitions = self.store.topics().await?;
            state.definitions_known = true;
            for (topic, lane) in &state.lanes {
                if let Some(server) = server(&self.handlers, &state.definitions, topic) {
                    // One that is gone says so by itself.
                    let _ = lane.dispatcher.cast(DispatcherMessage::Configure(server));
                }
            }
        }
        Ok(())
    }

    /// Asks for Dispatchers of topics that have due tasks and none yet.
    async fn look_for_topics(&self, state: &mut State) -> Result<(), StoreError> {
        let mut after = None;
        loop {
            let topics = self.store.due_topics(after.as_ref(), TOPICS).await?;
            let is_last = topics.len() < TOPICS as usize;
            for topic in &topics {
                if state.lanes.contains_key(topic) || state.awaited.contains(topic) {
                    continue;
                }
                if let Some(server) = server(&self.handlers, &state.definitions, topic) {
                    state.awaited.insert(topic.clone());
                    // A Supervisor that is gone takes us along.
                    let _ = self.supervisor.cast(SupervisorMessage::Serve { topic: topic.clone(), server });
                }
            }
            if is_last {
                return Ok(());
            }
            after = topics.into_iter().next_back();
        }
    }

    /// What to claim: the credit of every topic that may run, up to the cap.
    fn wants(&self, state: &State) -> Vec<Want> {
        let mut left = self.settings.max_tasks_per_poll;
        let mut wants = Vec::new();
        for (topic, lane) in state.lanes.iter().filter(|(_, lane)| lane.credit > 0) {
            if left == 0 {
                break;
            }
            if server(&self.handlers, &state.definitions, topic).is_some() {
                let slots = lane.credit.min(left);
                left -= slots;
                wants.push(Want { topic: topic.clone(), slots });
            }
        }
        wants
    }

    fn hand_over(&self, state: &mut State, tasks: Vec<Task>, sent_at: tokio::time::Instant) {
        let mut by_topic: HashMap<Topic, Vec<Task>> = HashMap::new();
        for task in tasks {
            // The claim itself counts as a possible loss; more than that one was lost before.
            if task.lost > 1 {
                state.suspects += 1;
            }
            by_topic.entry(task.topic.clone()).or_default().push(task);
        }
        for (topic, tasks) in by_topic {
            if let Some(lane) = state.lanes.get_mut(&topic) {
                lane.credit = lane.credit.saturating_sub(tasks.len() as u32);
                // One that is gone leaves these tasks to their leases.
                let _ = lane.dispatcher.cast(DispatcherMessage::Run { tasks, sent_at });
            }
        }
    }
}

/// When to look again.
enum Wake {
    AtOnce,
    At(DateTime<Utc>),
}
