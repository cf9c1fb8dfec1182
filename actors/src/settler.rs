//! The Settler: outcomes become batched, fenced writes.
//!
//! Owns the outcomes that are not yet written. A new outcome is written at once if nothing is being written; what
//! arrives meanwhile goes out together in the next batch, so that batches grow with the load and nobody waits for one
//! to fill. While a whole batch waits, a second write is handed to the store, which begins it beside the first where that is
//! of use. When too many
//! wait, the Claimer is told to claim no more until they are written. While the store is away it keeps what it has and tries
//! again. An outcome that cannot be written at all is found by halving the batch, and dropped: its task is left to its lease.
//! What the store refuses because the lease was lost is counted and dropped.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::clock::Clock;
use punctual_domain::news::News;
use punctual_domain::store::{Settled, Settling, Store, StoreError};
use punctual_domain::task::TaskStatus;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::sync::Notify;

use crate::mailbox::Probe;
use crate::meters::{Origin, TopicMeters};
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;

/// The most outcomes in one write.
const BATCH: usize = 2_000;
/// How many writes may be under way: the store decides whether a second one is of use before the first has ended.
const WRITES: usize = 2;
/// The first and the longest wait before a failed write is tried again. Shorter than the Reconciler's: when the store is
/// back, outcomes that are known come before leases that ran out meanwhile.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// With more outcomes waiting than this nothing more is claimed, until so few are left.
const TOO_MANY: usize = 5 * BATCH;
const FEW: usize = BATCH;

pub(crate) enum SettlerMessage {
    /// How many messages wait?
    Probe(Probe),
    /// Write outcomes.
    Settle(Vec<Ended>),
    /// Write what is waiting.
    Flush,
    /// A write ended.
    Written { batch: Vec<Ended>, answers: Result<Vec<Settled>, StoreError> },
    /// Answer once nothing is left to write.
    Drain(RpcReplyPort<()>),
}

/// An attempt's end.
pub(crate) struct Ended {
    pub(crate) settling: Settling,
    /// It is due again, or another task waited for it.
    pub(crate) unblocks: bool,
    pub(crate) origin: Origin,
    pub(crate) meters: Arc<TopicMeters>,
}

/// Configuration of the Settler.
pub(crate) struct Settler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
    /// Told when tasks have ended.
    pub(crate) happened: Arc<Notify>,
}

pub(crate) struct State {
    waiting: Vec<Ended>,
    /// How many outcomes the next write takes.
    batch: usize,
    /// How many writes are under way.
    writing: usize,
    /// The Claimer was told to wait.
    is_behind: bool,
    wait: Duration,
    /// The store was away, and is left alone for a while.
    backing_off: bool,
    alarm: Alarm,
    drained: Option<RpcReplyPort<()>>,
    backlog: metrics::Gauge,
}

impl Actor for Settler {
    type Msg = SettlerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<SettlerMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        Ok(State {
            waiting: Vec::new(),
            batch: BATCH,
            writing: 0,
            is_behind: false,
            wait: FIRST_WAIT,
            backing_off: false,
            alarm: Alarm::default(),
            drained: None,
            backlog: metrics::gauge!("punctual_settle_backlog"),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<SettlerMessage>,
        message: SettlerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            SettlerMessage::Probe(probe) => probe.answer(),
            SettlerMessage::Settle(ended) => {
                state.waiting.extend(ended);
                self.tell_if_behind(state);
                self.flush(&myself, state);
            }
            SettlerMessage::Flush => {
                state.backing_off = false;
                self.flush(&myself, state);
            }
            SettlerMessage::Written { batch, answers } => self.written(&myself, state, batch, answers),
            SettlerMessage::Drain(reply) => state.drained = Some(reply),
        }
        state.backlog.set(state.waiting.len() as f64);
        if state.writing == 0
            && state.waiting.is_empty()
            && let Some(reply) = state.drained.take()
        {
            // Whoever asked may have stopped waiting.
            let _ = reply.send(());
        }
        Ok(())
    }
}

impl Settler {
    /// Writes what is waiting, unless a write is under way that more may still gather behind. While a batch is halved to find
    /// what is wrong with it, nothing else is written.
    fn flush(&self, myself: &ActorRef<SettlerMessage>, state: &mut State) {
        while !state.backing_off && may_write(state) {
            self.write(myself, state);
        }
    }

    fn write(&self, myself: &ActorRef<SettlerMessage>, state: &mut State) {
        state.writing += 1;
        let rest = state.waiting.split_off(state.waiting.len().min(state.batch));
        let batch = std::mem::replace(&mut state.waiting, rest);
        let (store, myself) = (self.store.clone(), myself.clone());
        tokio::spawn(async move {
            let answers = store.settle(batch.iter().map(|ended| ended.settling.clone()).collect()).await;
            if answers.is_ok() && batch.iter().any(|ended| ended.unblocks) {
                // A hint to other nodes: what they miss of it, their next look finds.
                let _ = store.announce(&News::of_tasks()).await;
            }
            // A Settler that is gone leaves these tasks to their leases.
            let _ = myself.cast(SettlerMessage::Written { batch, answers });
        });
    }

    fn written(
        &self,
        myself: &ActorRef<SettlerMessage>,
        state: &mut State,
        mut batch: Vec<Ended>,
        answers: Result<Vec<Settled>, StoreError>,
    ) {
        state.writing -= 1;
        match answers {
            Ok(answers) => {
                self.happened.notify_one();
                self.tell_if_caught_up(state);
                state.wait = FIRST_WAIT;
                // A large one that began before another had to be halved tells nothing of that.
                if batch.len() <= state.batch {
                    state.batch = (state.batch * 2).min(BATCH);
                }
                if batch.iter().any(|ended| ended.unblocks) {
                    // A Supervisor that is gone takes us along.
                    let _ = self.supervisor.cast(SupervisorMessage::TasksWritten);
                }
                for (Ended { settling, origin, meters, .. }, answer) in batch.iter().zip(answers) {
                    let (task_id, epoch, settlement) = (settling.task_id, settling.epoch, &settling.settlement);
                    if answer == Settled::LeaseLost {
                        metrics::counter!("punctual_stale_settles_total").increment(1);
                        tracing::warn!(%task_id, %epoch, "lease lost");
                        continue;
                    }
                    meters.ended(settlement.status(), *origin, 1);
                    if settlement.status() == TaskStatus::Failed {
                        tracing::warn!(%task_id, outcome = settlement.outcome().as_str(), "task failed");
                    }
                }
                self.flush(myself, state);
            }
            Err(error @ StoreError::Broken(_)) if batch.len() == 1 => {
                for Ended { settling, .. } in &batch {
                    tracing::error!(task_id = %settling.task_id, %error, "outcome cannot be written, dropped");
                }
                self.tell_if_caught_up(state);
                self.flush(myself, state);
            }
            Err(error) => {
                tracing::warn!(%error, outcomes = batch.len(), "outcomes could not be written");
                if matches!(error, StoreError::Broken(_)) {
                    state.batch = batch.len() / 2;
                }
                batch.append(&mut state.waiting);
                state.waiting = batch;
                state.backing_off = true;
                let again_at = self.clock.now() + TimeDelta::from_std(state.wait).unwrap_or_default();
                state.alarm.set(&self.clock, again_at, myself, SettlerMessage::Flush);
                state.wait = (state.wait * 2).min(LONGEST_WAIT);
            }
        }
    }

    fn tell_if_behind(&self, state: &mut State) {
        if !state.is_behind && state.waiting.len() > TOO_MANY {
            state.is_behind = true;
            // A Supervisor that is gone takes us along.
            let _ = self.supervisor.cast(SupervisorMessage::SettlerBehind);
        }
    }

    fn tell_if_caught_up(&self, state: &mut State) {
        if state.is_behind && state.waiting.len() <= FEW {
            state.is_behind = false;
            // A Supervisor that is gone takes us along.
            let _ = self.supervisor.cast(SupervisorMessage::SettlerCaughtUp);
        }
    }
}

/// Whether a write can begin: the only one, or one more for a whole batch while nothing is wrong.
fn may_write(state: &State) -> bool {
    match state.writing {
        0 => !state.waiting.is_empty(),
        writing => writing < WRITES && state.batch == BATCH && state.waiting.len() >= BATCH,
    }
}
