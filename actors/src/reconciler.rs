//! The Reconciler: what crashed elsewhere is put right, and what is old is removed.
//!
//! Owns nothing. What wakes it: the instant at which the next lease expires, and its interval. It never touches a lease
//! that holds: the store decides by its own clock.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::store::{Expired, Store, StoreError};
use punctual_domain::task::MAX_LOST;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::Settings;
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;

/// How many expired leases are freed in one statement.
const BATCH: u32 = 1_000;
/// How many old rows are removed in one statement, and how often.
const PRUNE_BATCH: u32 = 1_000;
const PRUNE_EVERY: TimeDelta = TimeDelta::minutes(10);
/// The shortest sleep.
const SHORTEST_SLEEP: TimeDelta = TimeDelta::milliseconds(50);

pub(crate) enum ReconcilerMessage {
    /// Look for what must be put right.
    Reconcile,
}

/// Configuration of the Reconciler.
pub(crate) struct Reconciler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) settings: Settings,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

pub(crate) struct State {
    alarm: Alarm,
    pruned_at: Option<DateTime<Utc>>,
}

impl Actor for Reconciler {
    type Msg = ReconcilerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<ReconcilerMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        myself.cast(ReconcilerMessage::Reconcile)?;
        Ok(State { alarm: Alarm::default(), pruned_at: None })
    }

    async fn handle(
        &self,
        myself: ActorRef<ReconcilerMessage>,
        ReconcilerMessage::Reconcile: ReconcilerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        let wake_at = match self.pass(state).await {
            Ok(wake_at) => wake_at,
            Err(error) => {
                tracing::warn!(%error, "nothing could be put right");
                self.clock.now() + Duration::from_secs(1)
            }
        };
        state.alarm.set(&self.clock, wake_at, &myself, ReconcilerMessage::Reconcile);
        Ok(())
    }
}

impl Reconciler {
    /// One round: free expired leases, remove old rows now and then; then when to wake next.
    async fn pass(&self, state: &mut State) -> Result<DateTime<Utc>, StoreError> {
        loop {
            let Expired { freed, failed } = self.store.expire(MAX_LOST, BATCH).await?;
            if freed + failed > 0 {
                metrics::counter!("punctual_leases_expired_total").increment(freed + failed);
                tracing::warn!(freed, failed, "leases expired");
                // A Supervisor that is gone takes us along.
                let _ = self.supervisor.cast(SupervisorMessage::TasksWritten);
            }
            if freed + failed < u64::from(BATCH) {
                break;
            }
        }
        let now = self.clock.now();
        if state.pruned_at.is_none_or(|at| now - at >= PRUNE_EVERY) {
            let pruned = self.store.prune(self.settings.retention, PRUNE_BATCH).await?;
            let most = [pruned.tasks, pruned.fires, pruned.messages, pruned.answers].into_iter().max().unwrap_or(0);
            // A full batch means that there is more: go on with the next round.
            state.pruned_at = (most < u64::from(PRUNE_BATCH)).then_some(now);
        }
        let interval_at = now + self.settings.reconcile_interval;
        let Some(expiry_at) = self.store.next_expiry_at().await? else { return Ok(interval_at) };
        Ok(expiry_at.clamp(now + SHORTEST_SLEEP, interval_at.max(now + SHORTEST_SLEEP)))
    }
}
