//! The Claimer: due tasks become claims, never more than the free slots.
//!
//! Owns the credits: how many more tasks each Dispatcher can take. What wakes it: freed slots of a topic that has more,
//! written tasks, the instant at which the next task is due, and the poll interval as a safety net. It never claims for
//! a topic without credit.
//!
//! While a topic has free slots and nothing waits, they are lent to those who write tasks (`counter.rs`).
//!
//! Claims run beside the mailbox. As long as they come back full, the next one is on its way while the last is being
//! read; one that comes back short means that nothing more is due, and the Claimer rests until the next wake. Topics
//! that have due tasks but no Dispatcher yet are looked for whenever it is not known which topic has become due.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::store::{ClaimRequest, Store, StoreError, Suspects, Want};
use punctual_domain::task::Task;
use punctual_domain::topic::{Topic, TopicDefinition};
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::Settings;
use crate::counter::Counter;
use crate::dispatcher::{DispatcherMessage, is_suspect};
use crate::mailbox::Probe;
use crate::serving::{Handlers, server};
use crate::store_clock::StoreClock;
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;

/// How many claims may be under way at a time. With a third, the store always finds one waiting when it has answered: a
/// drain went faster by a tenth, on both databases.
const CLAIMS: usize = 3;
/// How many topics one look for new ones reads at a time.
const TOPICS: u32 = 1_000;
/// Tasks that became due this long ago and were not claimed wait for something else than time.
const JUST_DUE: TimeDelta = TimeDelta::seconds(1);
/// How long to wait for a task that is due and was not claimed: by the store's clock it may not be due yet, another node
/// may be at it, or its turn has not come. Doubled with each look in vain.
const FIRST_SECOND_LOOK: Duration = Duration::from_millis(1);
const LONGEST_SECOND_LOOK: Duration = Duration::from_millis(250);
/// How often topics that something became due in by time alone are looked for while others keep us busy.
const WHILE_BUSY: TimeDelta = TimeDelta::seconds(1);
/// How often we look while slots are lent.
const WHILE_LENT: TimeDelta = TimeDelta::minutes(1);
/// The first and the longest wait while the store is away.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(crate) enum ClaimerMessage {
    /// How many messages wait?
    Probe(Probe),
    /// A Dispatcher has so many free slots, after having received so many tasks in all.
    SlotsFree { topic: Topic, slots: u32, received: u64, dispatcher: ActorRef<DispatcherMessage> },
    /// A Dispatcher wants to end, unless tasks are on their way to it.
    Retiring { topic: Topic, dispatcher: ActorRef<DispatcherMessage> },
    /// A Dispatcher has ended.
    DispatcherEnded(ActorId),
    /// A lent slot was used for a task that is with its Dispatcher, or was not used after all.
    TicketBack { topic: Topic, dispatcher: ActorId, is_used: bool },
    /// Something may be due that was not, in any topic.
    Look,
    /// The instant has come that we wanted to wake at.
    Wake,
    /// A task was written that is due at that instant of the store's clock.
    Written { topic: Topic, run_at: DateTime<Utc> },
    /// Definitions of topics changed.
    TopicsChanged,
    /// An attempt of a task that had lost one before ended: another of its kind may go.
    SuspectEnded(TaskId),
    /// Such an attempt runs, begun for a Claimer that is gone.
    SuspectRunning { task_id: TaskId, dispatcher: ActorId },
    /// Outcomes pile up: claim no more until they are written.
    SettlerBehind,
    /// They are written.
    SettlerCaughtUp,
    /// Claim now.
    Claim,
    /// A claim ended.
    Claimed(Claimed),
    /// The store was away long enough.
    TryAgain,
    /// Claim no more, and answer once nothing more is handed over.
    Drain(RpcReplyPort<()>),
}

/// A claim and its answer.
pub(crate) struct Claimed {
    request: ClaimRequest,
    sent_at: Instant,
    answer: Result<Vec<Task>, StoreError>,
}

/// Configuration of the Claimer.
pub(crate) struct Claimer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) node: NodeId,
    pub(crate) handlers: Handlers,
    pub(crate) settings: Settings,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
    /// Told when attempts begin.
    pub(crate) happened: Arc<Notify>,
    /// Where free slots are lent.
    pub(crate) counter: Counter,
}

pub(crate) struct State {
    lanes: HashMap<Topic, Lane>,
    /// Topics whose Dispatcher was asked for and has not announced itself.
    awaited: HashSet<Topic>,
    definitions: Vec<TopicDefinition>,
    definitions_known: bool,
    /// Running tasks that have lost an attempt before, and where; they run one at a time.
    suspects: HashMap<TaskId, ActorId>,
    /// A claim is under way that may bring such a task.
    suspect_wanted: bool,
    /// Whether topics without a Dispatcher are looked for with the next claim.
    look: bool,
    /// A `Claim` to ourselves is on its way.
    claim_queued: bool,
    /// How many claims are under way.
    claims: usize,
    store_clock: StoreClock,
    /// When we last looked for anything that may be due.
    looked_at: Option<DateTime<Utc>>,
    /// The due instant that last made us claim again at once.
    hurried_for: Option<DateTime<Utc>>,
    /// How long the next such task is waited for.
    second_look: Duration,
    /// When we wake by ourselves, if we rest.
    wake_at: Option<DateTime<Utc>>,
    alarm: Alarm,
    wait: Duration,
    /// The store was away, and is left alone for a while.
    backing_off: bool,
    settler_behind: bool,
    draining: bool,
    drained: Option<RpcReplyPort<()>>,
}

impl State {
    /// Whether slots may be lent: there is nothing to claim, and nothing stands in the way of what would be begun.
    fn may_lend(&self) -> bool {
        let is_at_rest = self.claims == 0 && !self.claim_queued;
        is_at_rest && self.definitions_known && !self.draining && !self.backing_off && !self.settler_behind
    }
}

/// A Dispatcher and what it can still take.
struct Lane {
    dispatcher: ActorRef<DispatcherMessage>,
    /// How many slots were free when it last said so, and how many tasks it had received in all by then.
    slots: u32,
    received: u64,
    /// How many tasks it was handed in all.
    sent: u64,
    /// Slots that claims under way may fill.
    reserved: u32,
    /// Slots that were lent and have not come back.
    lent: u32,
    /// Something may have become due.
    look: bool,
    /// The last claim got all it wanted: there may be more.
    flowing: bool,
    /// It wants to end, once no claim is under way for it.
    retiring: bool,
}

impl Lane {
    /// The lane of a Dispatcher that has received so many tasks in all.
    fn new(dispatcher: ActorRef<DispatcherMessage>, received: u64) -> Self {
        Self {
            dispatcher,
            slots: 0,
            received,
            sent: received,
            reserved: 0,
            lent: 0,
            look: true,
            flowing: false,
            retiring: false,
        }
    }

    /// How many more tasks it can take: what is on its way to it, or may be, takes slots that were still free when it
    /// last said how many there are. A lent slot may be used, and even free again, before that is told here: its task is
    /// then among those received, and not yet among those sent. Below zero, it has fewer slots than were promised.
    fn balance(&self) -> i64 {
        let free = i64::from(self.slots) + self.received as i64;
        free - self.sent as i64 - i64::from(self.reserved) - i64::from(self.lent)
    }

    fn credit(&self) -> u32 {
        self.balance().try_into().unwrap_or(0)
    }

    fn wants_more(&self) -> bool {
        self.credit() > 0 && self.may_have_more()
    }

    /// Whether something may be due that was not claimed.
    fn may_have_more(&self) -> bool {
        self.look || self.flowing
    }

    /// Whether no slot is promised to anybody.
    fn is_free(&self) -> bool {
        self.reserved == 0 && self.lent == 0
    }
}

impl Actor for Claimer {
    type Msg = ClaimerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<ClaimerMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        // What a Claimer before us lent is taken as its tasks come.
        self.counter.close();
        myself.cast(ClaimerMessage::Look)?;
        Ok(State {
            lanes: HashMap::new(),
            awaited: HashSet::new(),
            definitions: Vec::new(),
            definitions_known: false,
            suspects: HashMap::new(),
            suspect_wanted: false,
            look: true,
            claim_queued: false,
            claims: 0,
            store_clock: StoreClock::new(self.clock.clone()),
            looked_at: None,
            hurried_for: None,
            second_look: FIRST_SECOND_LOOK,
            wake_at: None,
            alarm: Alarm::default(),
            wait: FIRST_WAIT,
            backing_off: false,
            settler_behind: false,
            draining: false,
            drained: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ClaimerMessage>,
        message: ClaimerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ClaimerMessage::Probe(probe) => probe.answer(),
            ClaimerMessage::SlotsFree { topic, slots, received, dispatcher } => {
                state.awaited.remove(&topic);
                let may_lend = state.may_lend();
                let lane = state.lanes.entry(topic.clone()).or_insert_with(|| Lane::new(dispatcher.clone(), received));
                if lane.dispatcher.get_id() != dispatcher.get_id() {
                    *lane = Lane::new(dispatcher, received);
                }
                (lane.slots, lane.received) = (slots, received);
                if lane.balance() < 0 {
                    self.call_in_lane(&topic, lane);
                }
                if lane.wants_more() {
                    self.queue_claim(&myself, state);
                } else if may_lend {
                    self.lend_lane(&myself, &state.definitions, &topic, lane);
                }
            }
            ClaimerMessage::Retiring { topic, dispatcher } => {
                self.call_in(state, |lane| lane.dispatcher.get_id() == dispatcher.get_id());
                match state.lanes.get_mut(&topic) {
                    Some(lane) if !lane.is_free() => lane.retiring = true,
                    _ => retire(state, &topic, &dispatcher),
                }
            }
            ClaimerMessage::TicketBack { topic, dispatcher, is_used } => {
                self.ticket_back(&myself, state, &topic, dispatcher, is_used);
            }
            ClaimerMessage::DispatcherEnded(id) => {
                self.call_in(state, |lane| lane.dispatcher.get_id() == id);
                state.lanes.retain(|_, lane| lane.dispatcher.get_id() != id);
                state.suspects.retain(|_, dispatcher| *dispatcher != id);
                // One that was asked for and ended at once is asked for again.
                state.awaited.clear();
                self.look(&myself, state);
            }
            ClaimerMessage::Look => self.look(&myself, state),
            ClaimerMessage::Wake => {
                self.look(&myself, state);
                // Until there is a moment to find out when the next task is due. There is one alarm: what it was set to
                // after this message was sent stays.
                if !state.backing_off && !state.draining {
                    self.wake(&myself, state, self.clock.now() + WHILE_BUSY);
                }
            }
            ClaimerMessage::Written { topic, run_at } => self.written(&myself, state, &topic, run_at),
            ClaimerMessage::TopicsChanged => {
                self.call_in(state, |_| true);
                self.counter.reopen();
                state.definitions_known = false;
                self.look(&myself, state);
            }
            ClaimerMessage::SuspectEnded(task_id) => {
                state.suspects.remove(&task_id);
                self.look(&myself, state);
            }
            ClaimerMessage::SuspectRunning { task_id, dispatcher } => {
                state.suspects.insert(task_id, dispatcher);
            }
            ClaimerMessage::SettlerBehind => {
                self.call_in(state, |_| true);
                state.settler_behind = true;
            }
            ClaimerMessage::SettlerCaughtUp => {
                state.settler_behind = false;
                self.look(&myself, state);
            }
            ClaimerMessage::Claim => {
                state.claim_queued = false;
                self.claim(&myself, state).await;
            }
            ClaimerMessage::Claimed(claimed) => self.claimed(&myself, state, claimed),
            ClaimerMessage::TryAgain => {
                state.backing_off = false;
                self.look(&myself, state);
            }
            ClaimerMessage::Drain(reply) => {
                self.call_in(state, |_| true);
                state.draining = true;
                state.alarm.clear();
                state.drained = Some(reply);
            }
        }
        if state.claims == 0
            && state.lanes.values().all(|lane| lane.lent == 0)
            && let Some(reply) = state.drained.take()
        {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
        Ok(())
    }
}

impl Claimer {
    /// Lets everything that is already in the mailbox be counted before the claim.
    fn queue_claim(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        let may = !state.claim_queued && !state.draining && !state.backing_off && !state.settler_behind;
        if may && state.claims < CLAIMS && myself.cast(ClaimerMessage::Claim).is_ok() {
            state.claim_queued = true;
        }
    }

    /// Anything may be due, in topics we know and in others.
    fn look(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        state.look = true;
        state.looked_at = Some(self.clock.now());
        for lane in state.lanes.values_mut() {
            lane.look = true;
        }
        self.queue_claim(myself, state);
    }

    /// A task that is due makes us claim; one that is not makes us wake in time for it.
    fn written(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State, topic: &Topic, run_at: DateTime<Utc>) {
        let due_at = state.store_clock.to_ours(run_at);
        if due_at <= self.clock.now() {
            match state.lanes.get_mut(topic) {
                Some(lane) => lane.look = true,
                None => state.look = true,
            }
            self.queue_claim(myself, state);
        } else if state.wake_at.is_some_and(|wake_at| due_at < wake_at) {
            self.wake(myself, state, due_at);
        }
    }

    fn wake(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State, at: DateTime<Utc>) {
        state.wake_at = Some(at);
        state.alarm.set(&self.clock, at, myself, ClaimerMessage::Wake);
    }

    /// Sends the next claim on its way, if there is credit for what may be due; else rests.
    async fn claim(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        if state.draining || state.backing_off || state.claims >= CLAIMS {
            return;
        }
        if let Err(error) = self.try_claim(myself, state).await {
            self.back_off(myself, state, &error);
        }
    }

    async fn try_claim(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) -> Result<(), StoreError> {
        self.learn(state).await?;
        // Nobody passes what may be waiting.
        self.call_in(state, Lane::may_have_more);
        let wants = self.wants(state).await?;
        let is_idle = wants.is_empty();
        if !is_idle {
            self.send_claim(myself, state, wants);
            self.queue_claim_for_more(myself, state);
        }
        if std::mem::take(&mut state.look) {
            self.look_for_topics(state).await.inspect_err(|_| state.look = true)?;
        }
        if is_idle && state.claims == 0 {
            match self.next_wake(state).await? {
                Wake::AtOnce => self.look(myself, state),
                Wake::At(at) => {
                    self.lend(myself, state);
                    // What is begun in lent slots does not come by here, and topics are to be learned again now and then.
                    let is_lent = state.lanes.values().any(|lane| lane.lent > 0);
                    let latest = if is_lent { self.clock.now() + WHILE_LENT } else { at };
                    self.wake(myself, state, at.min(latest));
                }
            }
        }
        Ok(())
    }

    /// Lends the free slots of all topics that may run and have nothing waiting.
    fn lend(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        if state.may_lend() {
            for (topic, lane) in &mut state.lanes {
                self.lend_lane(myself, &state.definitions, topic, lane);
            }
        }
    }

    fn lend_lane(
        &self,
        myself: &ActorRef<ClaimerMessage>,
        definitions: &[TopicDefinition],
        topic: &Topic,
        lane: &mut Lane,
    ) {
        let credit = lane.credit();
        let is_idle = credit > 0 && !lane.may_have_more() && !lane.retiring;
        if is_idle && server(&self.handlers, definitions, topic).is_some() {
            self.counter.lend(topic, credit, &lane.dispatcher, myself);
            lane.lent += credit;
        }
    }

    /// Takes back the lent slots that nobody has taken.
    fn call_in(&self, state: &mut State, which: impl Fn(&Lane) -> bool) {
        for (topic, lane) in state.lanes.iter_mut().filter(|(_, lane)| which(lane)) {
            self.call_in_lane(topic, lane);
        }
    }

    fn call_in_lane(&self, topic: &Topic, lane: &mut Lane) {
        if lane.lent > 0 {
            lane.lent -= self.counter.call_in(topic).min(lane.lent);
        }
    }

    /// A slot that was used holds a task which is with its Dispatcher by now; one that was not is free again.
    fn ticket_back(
        &self,
        myself: &ActorRef<ClaimerMessage>,
        state: &mut State,
        topic: &Topic,
        dispatcher: ActorId,
        is_used: bool,
    ) {
        let Some(lane) = state.lanes.get_mut(topic).filter(|lane| lane.dispatcher.get_id() == dispatcher) else {
            return;
        };
        lane.lent = lane.lent.saturating_sub(1);
        if is_used {
            lane.sent += 1;
            self.happened.notify_one();
        }
        if lane.retiring && lane.is_free() {
            let dispatcher = lane.dispatcher.clone();
            retire(state, topic, &dispatcher);
        } else if !is_used {
            self.queue_claim(myself, state);
        }
    }

    /// Claims beside the mailbox.
    fn send_claim(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State, wants: Vec<Want>) {
        for want in &wants {
            if let Some(lane) = state.lanes.get_mut(&want.topic) {
                lane.reserved += want.slots;
                lane.look = false;
            }
        }
        let may_take_suspect = state.suspects.is_empty() && !state.suspect_wanted;
        state.suspect_wanted |= may_take_suspect;
        state.claims += 1;
        let request = ClaimRequest {
            node: self.node,
            lease: self.settings.lease,
            wants,
            suspects: Suspects::AtMost(u32::from(may_take_suspect)),
        };
        let (store, myself, sent_at) = (self.store.clone(), myself.clone(), Instant::now());
        tokio::spawn(async move {
            let answer = store.claim(&request).await;
            // A Claimer that is gone leaves these tasks to their leases.
            let _ = myself.cast(ClaimerMessage::Claimed(Claimed { request, sent_at, answer }));
        });
    }

    fn queue_claim_for_more(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State) {
        if state.lanes.values().any(Lane::wants_more) {
            self.queue_claim(myself, state);
        }
    }

    fn claimed(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State, claimed: Claimed) {
        let Claimed { request, sent_at, answer } = claimed;
        state.claims -= 1;
        if request.suspects != Suspects::AtMost(0) {
            state.suspect_wanted = false;
        }
        let (tasks, error) = match answer {
            Ok(tasks) => (tasks, None),
            Err(error) => (Vec::new(), Some(error)),
        };
        if !tasks.is_empty() {
            self.happened.notify_one();
            state.second_look = FIRST_SECOND_LOOK;
        }
        let got = self.hand_over(state, tasks, sent_at, myself.get_id());
        let left_suspects = request.suspects == Suspects::AtMost(0) && state.suspects.is_empty();
        for Want { topic, slots } in &request.wants {
            let Some(lane) = state.lanes.get_mut(topic) else { continue };
            let got = got.get(topic).copied().unwrap_or(0);
            // A lane that is newer than the claim has nothing reserved for it.
            let reserved = lane.reserved.min(*slots);
            lane.reserved -= reserved;
            lane.flowing = got == *slots;
            // It may have come back short because it had to leave alone what another claim was allowed to take.
            lane.look |= error.is_some() || !lane.flowing && left_suspects;
            if lane.retiring && lane.is_free() {
                let dispatcher = lane.dispatcher.clone();
                retire(state, topic, &dispatcher);
            }
        }
        match error {
            Some(error) => self.back_off(myself, state, &error),
            None => {
                state.wait = FIRST_WAIT;
                // With nothing more to claim, this is what arms the next wake.
                self.queue_claim(myself, state);
            }
        }
    }

    fn back_off(&self, myself: &ActorRef<ClaimerMessage>, state: &mut State, error: &StoreError) {
        if std::mem::replace(&mut state.backing_off, true) {
            return;
        }
        self.call_in(state, |_| true);
        tracing::warn!(%error, "tasks could not be claimed");
        let again_at = self.clock.now() + state.wait;
        state.wait = (state.wait * 2).min(LONGEST_WAIT);
        state.wake_at = None;
        state.alarm.set(&self.clock, again_at, myself, ClaimerMessage::TryAgain);
    }

    /// The instant at which the next task is due, or the poll's.
    async fn next_wake(&self, state: &mut State) -> Result<Wake, StoreError> {
        let now = self.clock.now();
        let poll_at = now + self.settings.poll_interval;
        // What became due since the last look, however long ago that is.
        let since = state.looked_at.map_or(now, |looked_at| looked_at.min(now)) - JUST_DUE;
        let since = state.store_clock.to_theirs(since);
        let due_at = self.store.next_due_at(since).await?.map(|at| state.store_clock.to_ours(at));
        let Some(due_at) = due_at.filter(|due_at| *due_at <= self.clock.now()) else {
            state.second_look = FIRST_SECOND_LOOK;
            return Ok(Wake::At(due_at.map_or(poll_at, |due_at| due_at.min(poll_at))));
        };
        // It became due since the claim; one that is still there after another claim must not keep us spinning.
        let is_first = state.second_look == FIRST_SECOND_LOOK;
        if state.hurried_for.replace(due_at) != Some(due_at) && is_first {
            state.second_look *= 2;
            return Ok(Wake::AtOnce);
        }
        let following = self.store.next_due_at(state.store_clock.to_theirs(now)).await?;
        let following = following.map_or(poll_at, |at| state.store_clock.to_ours(at));
        let second_look = now + state.second_look;
        state.second_look = (state.second_look * 2).min(LONGEST_SECOND_LOOK);
        Ok(Wake::At(following.min(second_look).min(poll_at)))
    }

    /// Learns the topics' definitions when they changed, and the store's clock every minute.
    async fn learn(&self, state: &mut State) -> Result<(), StoreError> {
        state.definitions_known &= !state.store_clock.learn(&*self.store).await?;
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
        for topic in self.due_topics().await? {
            if state.lanes.contains_key(&topic) || state.awaited.contains(&topic) {
                continue;
            }
            if let Some(server) = server(&self.handlers, &state.definitions, &topic) {
                state.awaited.insert(topic.clone());
                // A Supervisor that is gone takes us along.
                let _ = self.supervisor.cast(SupervisorMessage::Serve { topic, server });
            }
        }
        Ok(())
    }

    /// What to claim: the credit of every topic that may run and may have something due. Where that is more than the
    /// cap, only topics that have due tasks count, each with its share, so that no topic's credit hides another's tasks.
    async fn wants(&self, state: &mut State) -> Result<Vec<Want>, StoreError> {
        let may_run = |(topic, lane): &(&Topic, &Lane)| {
            lane.wants_more() && server(&self.handlers, &state.definitions, topic).is_some()
        };
        let want = |(topic, lane): (&Topic, &Lane)| Want { topic: topic.clone(), slots: lane.credit() };
        let mut wants: Vec<_> = state.lanes.iter().filter(may_run).map(want).collect();
        let cap = self.settings.max_tasks_per_poll;
        if wants.iter().map(|want| u64::from(want.slots)).sum::<u64>() <= u64::from(cap) {
            return Ok(wants);
        }
        if let [only] = &mut wants[..] {
            only.slots = cap;
            return Ok(wants);
        }
        let due: HashSet<Topic> = self.due_topics().await?.into_iter().collect();
        wants.retain(|want| due.contains(&want.topic));
        for (_, lane) in state.lanes.iter_mut().filter(|(topic, _)| !due.contains(*topic)) {
            (lane.look, lane.flowing) = (false, false);
        }
        // The smallest first: what they leave of their share is for the others.
        wants.sort_unstable_by_key(|want| want.slots);
        wants.truncate(cap as usize);
        let (mut left, mut sharers) = (cap, wants.len() as u32);
        for want in &mut wants {
            want.slots = want.slots.min((left / sharers).max(1));
            left -= want.slots;
            sharers -= 1;
        }
        Ok(wants)
    }

    async fn due_topics(&self) -> Result<Vec<Topic>, StoreError> {
        let mut due: Vec<Topic> = Vec::new();
        loop {
            let page = self.store.due_topics(due.last(), TOPICS).await?;
            let is_last = page.len() < TOPICS as usize;
            due.extend(page);
            if is_last {
                return Ok(due);
            }
        }
    }

    /// Hands claimed tasks to their Dispatchers; answers how many there were of each topic.
    fn hand_over(
        &self,
        state: &mut State,
        tasks: Vec<Task>,
        sent_at: Instant,
        claimer: ActorId,
    ) -> HashMap<Topic, u32> {
        let mut counts = HashMap::new();
        for (topic, tasks) in by_topic(tasks) {
            let Some(lane) = state.lanes.get_mut(&topic) else { continue };
            counts.insert(topic.clone(), tasks.len() as u32);
            lane.sent += tasks.len() as u64;
            let suspects: Vec<_> = tasks.iter().filter(|task| is_suspect(task)).map(|task| task.id).collect();
            if lane.dispatcher.cast(DispatcherMessage::Run { tasks, sent_at, claimer }).is_ok() {
                let dispatcher = lane.dispatcher.get_id();
                state.suspects.extend(suspects.into_iter().map(|task_id| (task_id, dispatcher)));
            } else {
                // One that is gone leaves these tasks to their leases.
                state.lanes.remove(&topic);
            }
        }
        counts
    }
}

/// Tasks by their topics, each in the order given.
fn by_topic(tasks: Vec<Task>) -> HashMap<Topic, Vec<Task>> {
    // Most claims are for one topic; its tasks stay where they are.
    match tasks.first().map(|first| first.topic.clone()) {
        Some(topic) if tasks.iter().all(|task| task.topic == topic) => HashMap::from([(topic, tasks)]),
        _ => {
            let mut by_topic: HashMap<Topic, Vec<Task>> = HashMap::new();
            for task in tasks {
                by_topic.entry(task.topic.clone()).or_default().push(task);
            }
            by_topic
        }
    }
}

/// Lets a Dispatcher end. Messages of one sender arrive in order: whatever was handed to it before is there before this.
fn retire(state: &mut State, topic: &Topic, dispatcher: &ActorRef<DispatcherMessage>) {
    state.lanes.remove(topic);
    // One that is gone has ended already.
    let _ = dispatcher.cast(DispatcherMessage::Retire);
}

/// When to look again.
enum Wake {
    AtOnce,
    At(DateTime<Utc>),
}
