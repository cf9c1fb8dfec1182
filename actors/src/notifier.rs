//! The Notifier: the outbox drained, message by message.
//!
//! Owns how many messages are on their way, by transport. What wakes it: messages that were posted or are to be tried
//! again, here or on another node; ended sendings; and the instant at which the next message is due. It takes of each
//! transport no more than that sends side by side, so that a slow one neither fills the memory nor holds up the others.
//! A taken message has a lease: should this node die, it is due again when the lease has passed, and goes out with the
//! same ids. It never takes what no transport of this node can send.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::delivery::{Transport, Transports, after_attempt};
use punctual_domain::outbox::Sending;
use punctual_domain::store::{Store, StoreError};
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;

use crate::Settings;
use crate::attempt::chance;
use crate::mailbox::Probe;
use crate::sending::{STATUSES, Taking};
use crate::store_clock::StoreClock;
use crate::wake::Alarm;

/// The first and the longest wait before the store is asked again that was away.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);
/// How long to wait for what is due already and was not taken.
const SHORTEST_SLEEP: Duration = Duration::from_millis(50);

pub(crate) enum NotifierMessage {
    /// How many messages wait?
    Probe(Probe),
    /// Messages may be due that were not.
    Look,
    /// Take what there is room for.
    Take,
    /// The store was away; ask it again.
    TryAgain,
    /// A message is no longer on its way, and due again at that instant, if it is.
    Ended { transport: &'static str, again_at: Option<DateTime<Utc>> },
    /// Take nothing more, and answer once nothing is on its way.
    Drain(RpcReplyPort<()>),
}

/// Configuration of the Notifier.
pub(crate) struct Notifier {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) transports: Transports,
    pub(crate) settings: Settings,
}

pub(crate) struct State {
    lanes: BTreeMap<&'static str, Lane>,
    store_clock: StoreClock,
    alarm: Alarm,
    /// We have told ourselves to take.
    take_queued: bool,
    wait: Duration,
    /// The store is away, and left alone for a while.
    backing_off: bool,
    draining: bool,
    drained: Option<RpcReplyPort<()>>,
}

/// What is on its way by one transport.
struct Lane {
    transport: Arc<dyn Transport>,
    free: u32,
    sending: u32,
    /// There may be more that is due.
    has_more: bool,
}

impl Actor for Notifier {
    type Msg = NotifierMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<NotifierMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        let lane = |transport: &Arc<dyn Transport>| Lane {
            transport: transport.clone(),
            free: transport.concurrency(),
            sending: 0,
            has_more: true,
        };
        for (name, _) in self.transports.iter() {
            for status in STATUSES {
                metrics::counter!("punctual_messages_total", "transport" => name, "status" => status).increment(0);
            }
        }
        myself.cast(NotifierMessage::Look)?;
        Ok(State {
            lanes: self.transports.iter().map(|(name, transport)| (name, lane(transport))).collect(),
            store_clock: StoreClock::new(self.clock.clone()),
            alarm: Alarm::default(),
            take_queued: false,
            wait: FIRST_WAIT,
            backing_off: false,
            draining: false,
            drained: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<NotifierMessage>,
        message: NotifierMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            NotifierMessage::Probe(probe) => probe.answer(),
            NotifierMessage::Look => look(&myself, state),
            NotifierMessage::TryAgain => {
                state.backing_off = false;
                look(&myself, state);
            }
            NotifierMessage::Take => {
                state.take_queued = false;
                self.take(&myself, state).await;
            }
            NotifierMessage::Ended { transport, again_at } => {
                if let Some(lane) = state.lanes.get_mut(transport) {
                    lane.sending -= 1;
                    lane.free += 1;
                    if lane.has_more {
                        queue_take(&myself, state);
                    }
                }
                if let Some(again_at) = again_at
                    && state.alarm.at().is_some_and(|wake_at| again_at < wake_at)
                {
                    state.alarm.set(&self.clock, again_at, &myself, NotifierMessage::Look);
                }
            }
            NotifierMessage::Drain(reply) => {
                state.draining = true;
                state.alarm.clear();
                state.drained = Some(reply);
            }
        }
        if state.lanes.values().all(|lane| lane.sending == 0)
            && let Some(reply) = state.drained.take()
        {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
        Ok(())
    }
}

impl Notifier {
    async fn take(&self, myself: &ActorRef<NotifierMessage>, state: &mut State) {
        if state.draining || state.backing_off || state.lanes.is_empty() {
            return;
        }
        match self.pass(myself, state).await {
            Ok(wake_at) => {
                state.wait = FIRST_WAIT;
                if wake_at > self.clock.now() {
                    state.alarm.set(&self.clock, wake_at, myself, NotifierMessage::Look);
                } else {
                    state.alarm.set_after(SHORTEST_SLEEP, myself, NotifierMessage::Look);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "messages could not be taken");
                state.backing_off = true;
                state.alarm.set_after(state.wait, myself, NotifierMessage::TryAgain);
                state.wait = (state.wait * 2).min(LONGEST_WAIT);
            }
        }
    }

    /// One round: takes what is due as far as there is room, and sends it beside the mailbox; then when to wake next.
    async fn pass(&self, myself: &ActorRef<NotifierMessage>, state: &mut State) -> Result<DateTime<Utc>, StoreError> {
        state.store_clock.learn(&*self.store).await?;
        let lease = self.settings.message_lease;
        for (name, lane) in &mut state.lanes {
            while lane.has_more && lane.free > 0 {
                let taken_at = Instant::now();
                let messages = self.store.take_messages(name, lease, lane.free).await?;
                lane.has_more = messages.len() == lane.free as usize;
                lane.free -= messages.len() as u32;
                lane.sending += messages.len() as u32;
                for message in messages {
                    self.send(myself, name, lane.transport.clone(), Taking { message, taken_at, lease });
                }
            }
        }
        // What a full lane could take, it takes when there is room.
        let waiting: Vec<_> = state.lanes.iter().filter(|(_, lane)| !lane.has_more).map(|(name, _)| *name).collect();
        let latest = self.clock.now() + self.settings.poll_interval;
        let next_at = self.store.next_message_at(&waiting).await?.map(|at| state.store_clock.to_ours(at));
        Ok(next_at.map_or(latest, |at| at.min(latest)))
    }

    fn send(
        &self,
        myself: &ActorRef<NotifierMessage>,
        name: &'static str,
        transport: Arc<dyn Transport>,
        taking: Taking,
    ) {
        let (store, clock, myself) = (self.store.clone(), self.clock.clone(), myself.clone());
        tokio::spawn(async move {
            let sent = taking.send(&*transport).await;
            let sending = after_attempt(sent, taking.message.attempt, chance());
            // Before it is written: whoever reads it may act on it, and then we must not be late.
            let again_at =
                if let Sending::Retried { after, .. } = &sending { Some(clock.now() + *after) } else { None };
            taking.record(&store, &sending).await;
            // A Notifier that is gone has forgotten this one.
            let _ = myself.cast(NotifierMessage::Ended { transport: name, again_at });
        });
    }
}

/// Anything may be due.
fn look(myself: &ActorRef<NotifierMessage>, state: &mut State) {
    for lane in state.lanes.values_mut() {
        lane.has_more = true;
    }
    queue_take(myself, state);
}

/// Lets everything that is already in the mailbox be counted before we take.
fn queue_take(myself: &ActorRef<NotifierMessage>, state: &mut State) {
    if !state.take_queued && myself.cast(NotifierMessage::Take).is_ok() {
        state.take_queued = true;
    }
}
