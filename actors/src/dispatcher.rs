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
use punctual_domain::store::{Extension, Store, StoreError};
use punctual_domain::task::Task;
use punctual_domain::topic::Topic;
use ractor::{Actor, ActorProcessingErr, ActorRef, SupervisionEvent};
use tokio::time::Instant;

use crate::Settings;
use crate::attempt::{Stop, Stops};
use crate::claimer::ClaimerMessage;
use crate::serving::Server;
use crate::settler::SettlerMessage;
use crate::slot::{Assignment, Slot, SlotMessage};

pub(crate) enum DispatcherMessage {
    /// Perform these claimed tasks; the claim was sent at that instant.
    Run { tasks: Vec<Task>, sent_at: Instant },
    /// An attempt ended; its slot is free.
    Ended { task_id: TaskId, epoch: Epoch, slot: ActorRef<SlotMessage> },
    /// A running task was cancelled.
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
    settler: ActorRef<SettlerMessage>,
    claimer: ActorRef<ClaimerMessage>,
    running: HashMap<TaskId, InFlight>,
    idle: Vec<ActorRef<SlotMessage>>,
    /// Credit that the Claimer has and has not used.
    credit: u32,
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
    epoch: Epoch,
    stops: Stops,
    slot: ActorRef<SlotMessage>,
    /// Until when its lease may be acted on.
    safe_until: Instant,
    /// It had lost an attempt before.
    suspect: bool,
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
            server,
            settler,
            claimer,
            running: HashMap::new(),
            idle: Vec::new(),
            credit: 0,
            refilled_at: now,
            extending: false,
            extended_at: now,
            idle_since: now,
            retiring: false,
            draining: false,
            pulse: None,
        };
        self.give_credit(&myself, &mut state);
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
            DispatcherMessage::Run { tasks, sent_at } => self.run(&myself, state, tasks, sent_at).await?,
            DispatcherMessage::Ended { task_id, epoch, slot } => self.ended(&myself, state, task_id, epoch, slot),
            DispatcherMessage::TaskCancelled(id) => {
                if let Some(in_flight) = state.running.get(&id) {
                    in_flight.stops.stop(Stop::Void);
                }
            }
            DispatcherMessage::Pulse => self.pulse(&myself, state),
            DispatcherMessage::Extended { asked, sent_at, answers } => self.extended(state, &asked, sent_at, answers),
            DispatcherMessage::Configure(server) => {
                state.server = server;
                self.give_credit(&myself, state);
            }
            DispatcherMessage::Rewire { settler, claimer } => {
                if state.claimer.get_id() != claimer.get_id() {
                    // The new Claimer knows of no credit.
                    state.credit = 0;
                    state.retiring = false;
                }
                (state.settler, state.claimer) = (settler, claimer);
                self.give_credit(&myself, state);
            }
            DispatcherMessage::Retire => {
                state.credit = 0;
                state.retiring = false;
                if state.running.is_empty() {
                    myself.stop(None);
                } else {
                    self.give_credit(&myself, state);
                }
            }
            DispatcherMessage::Drain => state.draining = true,
            DispatcherMessage::HandBack => {
                for in_flight in state.running.values() {
                    in_flight.stops.stop(Stop::HandBack);
                }
            }
        }
        if state.draining && state.running.is_empty() {
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
            state.running.retain(|_, in_flight| in_flight.slot.get_id() != slot.get_id());
            self.give_credit(&myself, state);
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
        state.credit = state.credit.saturating_sub(tasks.len() as u32);
        for task in tasks {
            let slot = match state.idle.pop() {
                Some(slot) => slot,
                None => {
                    let slot = Slot { clock: self.clock.clone(), dispatcher: myself.clone() };
                    Actor::spawn_linked(None, slot, (), myself.get_cell()).await?.0
                }
            };
            let stops = Stops::default();
            let in_flight = InFlight {
                epoch: task.epoch,
                stops: stops.clone(),
                slot: slot.clone(),
                safe_until: sent_at + Lease::safe_for(self.settings.lease),
                suspect: task.lost > 1,
            };
            state.running.insert(task.id, in_flight);
            let handler = state.server.handler.clone();
            let assignment = Assignment { handler, task, stops, settler: state.settler.clone() };
            slot.cast(SlotMessage::Begin(Box::new(assignment)))?;
        }
        Ok(())
    }

    fn ended(
        &self,
        myself: &ActorRef<DispatcherMessage>,
        state: &mut State,
        task_id: TaskId,
        epoch: Epoch,
        slot: ActorRef<SlotMessage>,
    ) {
        if state.running.get(&task_id).is_some_and(|in_flight| in_flight.epoch == epoch) {
            let ended = state.running.remove(&task_id);
            if ended.is_some_and(|ended| ended.suspect) {
                // A Claimer that is gone counts anew.
                let _ = state.claimer.cast(ClaimerMessage::SuspectEnded);
            }
        }
        if (state.idle.len() as u32) < state.server.concurrency {
            state.idle.push(slot);
        } else {
            slot.stop(None);
        }
        if state.running.is_empty() {
            state.idle_since = Instant::now();
        }
        self.give_credit(myself, state);
    }

    /// Tells the Claimer of slots that are free and that it does not know of, as far as the rate allows.
    fn give_credit(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        if state.draining || state.retiring {
            return;
        }
        let taken = state.running.len() as u32 + state.credit;
        let mut slots = state.server.concurrency.saturating_sub(taken);
        if let Some(rate) = state.server.rate_per_second {
            let now = Instant::now();
            state.tokens = (state.tokens + rate * (now - state.refilled_at).as_secs_f64()).min(rate.max(1.0));
            state.refilled_at = now;
            slots = slots.min(state.tokens as u32);
            state.tokens -= f64::from(slots);
        }
        if slots > 0 {
            state.credit += slots;
            let freed = ClaimerMessage::SlotsFreed { topic: self.topic.clone(), slots, dispatcher: myself.clone() };
            // A Claimer that is gone is replaced, and the next one is told.
            let _ = state.claimer.cast(freed);
        }
    }

    fn pulse(&self, myself: &ActorRef<DispatcherMessage>, state: &mut State) {
        let now = Instant::now();
        for (task_id, in_flight) in &state.running {
            if in_flight.safe_until <= now {
                tracing::warn!(%task_id, "attempt stopped before its lease ends");
                in_flight.stops.stop(Stop::Void);
            }
        }
        if !state.extending && !state.running.is_empty() && now - state.extended_at >= self.settings.heartbeat {
            self.extend(myself, state, now);
        }
        self.give_credit(myself, state);
        let is_idle = state.running.is_empty() && now - state.idle_since >= self.settings.idle_dispatcher;
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
            .map(|(task_id, in_flight)| Extension { task_id: *task_id, epoch: in_flight.epoch })
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
            let Some(in_flight) = state.running.get_mut(&extension.task_id) else { continue };
            if in_flight.epoch != extension.epoch {
                continue;
            }
            match answer {
                Some(_) => in_flight.safe_until = sent_at + Lease::safe_for(self.settings.lease),
                None => {
                    tracing::warn!(task_id = %extension.task_id, epoch = %extension.epoch, "lease lost");
                    in_flight.stops.stop(Stop::Void);
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
