//! The Dispatcher of one topic: slots, rate, and leases kept alive.
//!
//! Owns the topic's slots and what runs in them. What wakes it: claimed tasks, ended attempts, and its own pulse. On
//! each pulse it extends the leases of all its running attempts in one statement, stops those whose lease it could not
//! extend in time (by the monotonic clock, before the store lets anybody else have them), and gives out credit as the
//! rate allows. With nothing to do for a while it asks the Claimer for leave, and ends.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::lease::Lease;
use punctual_domain::store::{Extension, Settling, Store, StoreError};
use punctual_domain::task::{Settlement, Task};
use punctual_domain::topic::Topic;
use ractor::{Actor, ActorId, ActorProcessingErr, ActorRef, MessagingErr, SupervisionEvent};
use tokio::runtime::Handle;
use tokio::time::Instant;

use crate::Settings;
use crate::attempt::{Stop, Stops};
use crate::claimer::ClaimerMessage;
use crate::mailbox::Probe;
use crate::meters::{Origin, TopicMeters};
use crate::serving::Server;
use crate::settler::{Ended, SettlerMessage};
use crate::slot::{Assignment, AttemptEnd, Ends, Pace, Slot, SlotMessage};

/// The most attempts that one slot is given at a time.
const LARGEST_SHARE: usize = 64;

pub(crate) enum DispatcherMessage {
    /// How many messages wait?
    Probe(Probe),
    /// Perform these claimed tasks; the claim was sent at that instant, for that Claimer.
    Run { tasks: Vec<Task>, sent_at: Instant, claimer: ActorId },
    /// Attempts of a slot ended.
    Ended(Ends),
    /// Pass on the outcomes that have gathered, and tell of the slots they freed.
    Flush,
    /// A task was cancelled: if it runs here, its attempt is to stop.
    TaskCancelled(TaskId),
    /// Time to extend leases, refill the rate, and see whether there is anything to do.
    Pulse,
    /// Leases were extended, or not.
    Extended { asked: Vec<Extension>, sent_at: Instant, answers: Result<Vec<Option<DateTime<Utc>>>, StoreError> },
    /// The topic is served differently from now on.
    Configure(Server),
    /// Another Settler or Claimer took over.
    Rewire { settler: ActorRef<SettlerMessage>, claimer: ActorRef<ClaimerMessage> },
    /// The Claimer hands over nothing more; end if there is nothing left.
    Retire,
    /// Take nothing more, end when nothing runs.
    Drain,
    /// Hand back what still runs.
    HandBack,
}

/// Configuration of a Dispatcher.
pub(crate) struct Dispatcher {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) topic: Topic,
}

/// What a Dispatcher is started with.
pub(crate) struct Start {
    pub(crate) server: Server,
    pub(crate) settler: ActorRef<SettlerMessage>,
    pub(crate) claimer: ActorRef<ClaimerMessage>,
}

pub(crate) struct State {
    server: Server,
    meters: Arc<TopicMeters>,
    settler: ActorRef<SettlerMessage>,
    claimer: ActorRef<ClaimerMessage>,
    /// By task and epoch: a task whose lease was lost may come again while its old attempt is being stopped.
    running: HashMap<(TaskId, Epoch), InFlight>,
    idle: Vec<ActorRef<SlotMessage>>,
    /// How many attempts a slot is given at a time: the more, the longer all of them were done at once; one as soon as
    /// one had to wait, so that none waits for another.
    share: usize,
    /// How many tasks the Claimer has handed over in all: with each announcement it learns which of its own are still
    /// on their way.
    received: u64,
    /// The last announcement: free slots, and what had been received.
    announced: (u32, u64),
    /// Outcomes on their way to the Settler, or that found none.
    outcomes: Vec<Ended>,
    /// A `Flush` to ourselves is on its way.
    flush_queued: bool,
    /// How many attempts may begin now under the rate.
    tokens: f64,
    refilled_at: Instant,
    extending: bool,
    extended_at: Instant,
    idle_since: Instant,
    retiring: bool,
    draining: bool,
    pulse: Option<tokio::task::JoinHandle<()>>,
}

/// A running attempt.
struct InFlight {
    stops: Stops,
    /// Where it runs; none while it is on its way there.
    slot: Option<ActorId>,
    /// Until when its lease may be acted on.
    safe_until: Instant,
    /// It had lost an attempt before.
    suspect: bool,
    /// Others of its serial key wait for it.
    is_serial: bool,
    origin: Origin,
    timeout_seconds: u32,
}

impl Actor for Dispatcher {
    type Msg = DispatcherMessage;
    type State = State;
    type Arguments = Start;

    async fn pre_start(
        &self,
        myself: ActorRef<DispatcherMessage>,
        Start { server, settler, claimer }: Start,
    ) -> Result<State, ActorProcessingErr> {
        let now = Instant::now();
        let mut state = State {
            tokens: server.rate_per_second.unwrap_or(0.0).max(1.0),
            meters: TopicMeters::of(&server.label),
            server,
            settler,
            claimer,
            running: HashMap::new(),
            idle: Vec::new(),
            share: 1,
            received: 0,
            announced: (0, 0),
            outcomes: Vec::new(),
            flush_queued: false,
            refilled_at: now,
            extending: false,
            extended_at: now,
            idle_since: now,
            retiring: false,
            draining: false,
            pulse: None,
        };
        self.announce(&myself, &mut state);
        self.arm(&myself, &mut state);
        Ok(state)
    }

    async fn handle(
        &self,
        myself: ActorRef<DispatcherMessage>,
        message: DispatcherMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            DispatcherMessage::Probe(probe) => probe.answer(),
            DispatcherMessage::Run { tasks, sent_at, claimer } => {
                // One that took over counts only what it handed over itself.
                if claimer == state.claimer.get_id() {
                    state.received += tasks.len() as u64;
                }
                self.run(&myself, state, tasks, sent_at).await?;
            }
            DispatcherMessage::Ended(ends) => self.ended(&myself, state, ends).await?,
            DispatcherMessage::Flush => {
                state.flush_queued = false;
                self.flush(&myself, state);
            }
            DispatcherMessage::TaskCancelled(id) => {
                for (_, in_flight) in state.running.iter().filter(|((task_id, _), _)| *task_id == id) {
                    in_flight.stops.stop(Stop::Cancelled);
                }
            }
            DispatcherMessage::Pulse => self.pulse(&myself, state),
            DispatcherMessage::Extended { asked, sent_at, answers } => self.extended(state, &asked, sent_at, answers),
            DispatcherMessage::Configure(server) => {
                if *server.label != *state.meters.label() {
                    state.meters = TopicMeters::of(&server.label);
                }
                state.server = server;
                self.announce(&myself, state);
            }
            DispatcherMessage::Rewire { settler, claimer } => self.rewire(&myself, state, settler, claimer),
            DispatcherMessage::Retire => {
                state.retiring = false;
                if state.running.is_empty() && state.outcomes.is_empty() {
                    myself.stop(None);
                } else {
                    self.announce(&myself, state);
                }
            }
            DispatcherMessage::Drain => state.draining = true,
            DispatcherMessage::HandBack => {
                for in_flight in state.running.values() {
                    in_flight.stops.stop(Stop::HandBack);
                }
            }
        }
        if state.draining && state.running.is_empty() && state.outcomes.is_empty() {
            myself.stop(None);
        }
        Ok(())
    }

    async fn post_stop(&self, _: ActorRef<DispatcherMessage>, state: &mut State) -> Result<(), ActorProcessingErr> {
        if let Some(pulse) = state.pulse.take() {
            pulse.abort();
        }
        Ok(())
    }

    /// A slot that failed takes its attempt along; the lease will tell.
    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<DispatcherMessage>,
        event: SupervisionEvent,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        if let SupervisionEvent::ActorFailed(slot, error) = event {
            tracing::error!(topic = %self.topic, %error, "slot failed");
            metrics::counter!("punctual_actor_restarts_total", "actor" => "slot").increment(1);
            state.idle.retain(|idle| idle.get_id() != slot.get_id());
            let lost = state.running.extract_if(|_, in_flight| in_flight.slot == Some(slot.get_id()));
            let suspects: Vec<_> = lost.filter(|(_, in_flight)| in_flight.suspect).collect();
            for ((task_id, _), _) in suspects {
                self.suspect_ended(state, task_id);
            }
            self.announce(&myself, state);
        }
        Ok(())
    }
}

impl Dispatcher {
    async fn run(
        &self,
        myself: &ActorRef<DispatcherMessage>,
        state: &mut State,
        tasks: Vec<Task>,
        sent_at: Instant,
    ) -> Result<(), ActorProcessingErr> {
        state.tokens -= tasks.len() as f64;
        let safe_until = sent_at + Lease::safe_for(self.settings.lease);
        let mut assignments = Vec::with_capacity(tasks.len());
        for task in tasks {
            // Too late to begin, by our own lease or because we are stopping.
            if state.draining || Instant::now() >= safe_until {
                let settling = Settling { task_id: task.id, epoch: task.epoch, settlement: Settlement::HandedBack };
                self.settle(myself, state, settling, Origin::of(&task), task.serial_key.is_some());
                if is_suspect(&task) {
                    self.suspect_ended(state, task.id);
                }
                continue;
            }
            let stops = Stops::default();
            let in_flight = InFlight {
                stops: stops.clone(),
                slot: None,
                safe_until,
                suspect: is_suspect(&task),
                is_serial: task.serial_key.is_some(),
                origin: Origin::of(&task),
                timeout_seconds: task.timeout_seconds,
            };
            state.meters.began(&task);
            state.running.insert((task.id, task.epoch), in_flight);
            assignments.push(Assignment { handler: state.server.handler.clone(), task, stops });
        }
        self.begin(myself, state, assignments).await
    }

    /// Gives attempts to slots, each its share.
    async fn begin(
        &self,
        myself: &ActorRef<DispatcherMessage>,
        state: &mut State,
        assignments: Vec<Assignment>,
    ) -> Result<(), ActorProcessingErr> {
        // No larger than leaves something for every core.
        let most = assignments.len().div_ceil(Handle::current().metrics().num_workers());
        let share = state.share.min(most).max(1);
        let mut assignments = assignments.into_iter();
        while assignments.len() > 0 {
            let slot = match state.idle.pop() {
                Some(slot) => slot,
                None => {
                    let slot = Slot { clock: self.clock.clone(), dispatcher: myself.clone() };
                    Actor::spawn_linked(None, slot, (), myself.get_cell()).await?.0
                }
            };
            let share: Vec<_> = assignments.by_ref().take(share).collect();
            for Assignment { task, .. } in &share {
                if let Some(in_flight) = state.running.get_mut(&(task.id, task.epoch)) {
                    in_flight.slot = Some(slot.get_id());
                }
            }
            slot.cast(SlotMessage::Begin(share))?;
        }
        Ok(())
    }

    async fn ended(
        &self,
        myself: &ActorRef<DispatcherMessage>,
        state: &mut State,
        Ends { ends, left, slot, pace }: Ends,
    ) -> Result<(), ActorProcessingErr> {
        for AttemptEnd { attempt: (task_id, epoch), settlement, elapsed } in ends {
            let Some(in_flight) = state.running.remove(&(task_id, epoch)) else { continue };
            if let Some(settlement) = settlement {
                if settlement != Settlement::HandedBack {
                    state.meters.took(elapsed, in_flight.timeout_seconds);
                }
                let settling = Settling { task_id, epoch, settlement };
                self.settle(myself, state, settling, in_flight.origin, in_flight.is_serial);
            }
            if in_flight.suspect {
                self.suspect_ended(state, task_id);
            }
        }
        state.share = match pace {
            Pace::AtOnce => (state.share * 2).min(LARGEST_SHARE),
            Pace::Waited => 1,
        };
        match slot {
            Some(slot) if (state.idle.len() as u32) < state.server.concurrency => state.idle.push(slot),
            Some(slot) => slot.stop(None),
            None => {}
        }
        if state.running.is_empty() {
            state.idle_since = Instant::now();
        }
        self.queue_flush(myself, state);
        self.begin(myself, state, left).await
    }

    /// Sends an outcome on its way to be written.
    fn settle(
        &self,
        myself: &ActorRef<DispatcherMessage>,
        state: &mut State,
        settling: Settling,
        origin: Origin,
        is_serial: bool,
    ) {
        // It, or one that waited for it, becomes due at an instant the Claimer does not know yet.
        let unblocks = is_serial || !settling.settlement.status().has_ended();
        state.outcomes.push(Ended { settling, unblocks, origin, meters: state.meters.clone() });
        self.queue_flush(myself, state);
    }

    /// Lets everything that has ended by now be passed on together.
    fn queue_flush(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        if !state.flush_queued && myself.cast(DispatcherMessage::Flush).is_ok() {
            state.flush_queued = true;
        }
    }

    fn flush(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        let outcomes = std::mem::take(&mut state.outcomes);
        if !outcomes.is_empty()
            && let Err(MessagingErr::SendErr(SettlerMessage::Settle(outcomes))) =
                state.settler.cast(SettlerMessage::Settle(outcomes))
        {
            // The next Settler gets them.
            state.outcomes = outcomes;
        }
        self.announce(myself, state);
    }

    fn suspect_ended(&self, state: &State, task_id: TaskId) {
        // A Claimer that is gone counts anew.
        let _ = state.claimer.cast(ClaimerMessage::SuspectEnded(task_id));
    }

    /// Tells the Claimer how many slots are free, as far as the rate allows, if that changed.
    fn announce(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        if state.draining || state.retiring {
            return;
        }
        let mut slots = state.server.concurrency.saturating_sub(state.running.len() as u32);
        match state.server.rate_per_second {
            Some(rate) => {
                let now = Instant::now();
                state.tokens = (state.tokens + rate * (now - state.refilled_at).as_secs_f64()).min(rate.max(1.0));
                state.refilled_at = now;
                slots = slots.min(state.tokens.max(0.0) as u32);
            }
            None => state.tokens = 0.0,
        }
        if state.announced == (slots, state.received) {
            return;
        }
        state.announced = (slots, state.received);
        let free = ClaimerMessage::SlotsFree {
            topic: self.topic.clone(),
            slots,
            received: state.received,
            dispatcher: myself.clone(),
        };
        // A Claimer that is gone is replaced, and the next one is told.
        let _ = state.claimer.cast(free);
    }

    /// Another Settler or Claimer took over: gives them what their predecessors knew.
    fn rewire(
        &self,
        myself: &ActorRef<DispatcherMessage>,
        state: &mut State,
        settler: ActorRef<SettlerMessage>,
        claimer: ActorRef<ClaimerMessage>,
    ) {
        let is_new_claimer = state.claimer.get_id() != claimer.get_id();
        (state.settler, state.claimer) = (settler, claimer);
        if is_new_claimer {
            // Before anything is announced to it.
            state.received = 0;
            state.announced = (0, 0);
            state.retiring = false;
        }
        self.flush(myself, state);
        if is_new_claimer {
            for ((task_id, _), _) in state.running.iter().filter(|(_, in_flight)| in_flight.suspect) {
                let running = ClaimerMessage::SuspectRunning { task_id: *task_id, dispatcher: myself.get_id() };
                // One that fails as well asks again.
                let _ = state.claimer.cast(running);
            }
        }
    }

    fn pulse(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        let now = Instant::now();
        for ((task_id, _), in_flight) in &state.running {
            if in_flight.safe_until <= now && in_flight.stops.stop(Stop::LeaseEnding) {
                tracing::warn!(%task_id, "attempt stopped before its lease ends");
            }
        }
        if !state.extending && !state.running.is_empty() && now - state.extended_at >= self.settings.heartbeat {
            self.extend(myself, state, now);
        }
        self.announce(myself, state);
        let is_idle = state.running.is_empty()
            && state.outcomes.is_empty()
            && now - state.idle_since >= self.settings.idle_dispatcher;
        if is_idle && !state.retiring && !state.draining {
            state.retiring = true;
            let retiring = ClaimerMessage::Retiring { topic: self.topic.clone(), dispatcher: myself.clone() };
            // A Claimer that is gone is replaced, and then we ask again.
            let _ = state.claimer.cast(retiring);
        }
        self.arm(myself, state);
    }

    /// Extends every lease in one statement, beside the mailbox.
    fn extend(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State, now: Instant) {
        state.extending = true;
        state.extended_at = now;
        let asked: Vec<_> = state
            .running
            .iter()
            .filter(|(_, in_flight)| in_flight.stops.why().is_none())
            .map(|((task_id, epoch), _)| Extension { task_id: *task_id, epoch: *epoch })
            .collect();
        let (store, lease, myself) = (self.store.clone(), self.settings.lease, myself.clone());
        tokio::spawn(async move {
            let answers = store.extend(&asked, lease).await;
            // A Dispatcher that is gone holds no leases.
            let _ = myself.cast(DispatcherMessage::Extended { asked, sent_at: now, answers });
        });
    }

    fn extended(
        &self,
        state: &mut State,
        asked: &[Extension],
        sent_at: Instant,
        answers: Result<Vec<Option<DateTime<Utc>>>, StoreError>,
    ) {
        state.extending = false;
        let answers = match answers {
            Ok(answers) => answers,
            Err(error) => {
                tracing::warn!(topic = %self.topic, %error, leases = asked.len(), "leases could not be extended");
                // Tried again with the next pulse; each attempt stops in time if that fails too.
                state.extended_at = sent_at - self.settings.heartbeat.min(Duration::from_secs(1));
                return;
            }
        };
        for (extension, answer) in asked.iter().zip(answers) {
            let Some(in_flight) = state.running.get_mut(&(extension.task_id, extension.epoch)) else { continue };
            match answer {
                Some(_) => in_flight.safe_until = sent_at + Lease::safe_for(self.settings.lease),
                None => {
                    tracing::warn!(task_id = %extension.task_id, epoch = %extension.epoch, "lease lost");
                    in_flight.stops.stop(Stop::LeaseEnding);
                }
            }
        }
    }

    /// The pulse follows the monotonic clock: it is what keeps us inside our leases.
    fn arm(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        let fastest = if state.server.rate_per_second.is_some() { 50 } else { 500 };
        let beat = (self.settings.heartbeat / 4).clamp(Duration::from_millis(20), Duration::from_millis(fastest));
        let myself = myself.clone();
        state.pulse = Some(tokio::spawn(async move {
            tokio::time::sleep(beat).await;
            // One that is gone has no pulse.
            let _ = myself.cast(DispatcherMessage::Pulse);
        }));
    }
}

/// Whether a task has lost an attempt before this one, which its claim counts as a possible loss.
pub(crate) fn is_suspect(task: &Task) -> bool {
    task.lost > 1
}

#[cfg(test)]
mod tests;
