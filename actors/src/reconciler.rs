//! The Reconciler: what crashed elsewhere is put right, what schedules should have done is watched over, what somebody has
//! to know is told, and what is old is removed.
//!
//! Owns nothing. What wakes it: the instant at which the next lease expires, its interval, and what the health checks of plugins
//! have found. Those look beside it, one round at a time: a plugin that takes its time keeps no lease from being freed. It never
//! touches a lease that holds: the store decides by its own clock.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::alert::{Address, Alert};
use punctual_domain::clock::Clock;
use punctual_domain::news::News;
use punctual_domain::store::{Expired, Store, StoreError};
use punctual_domain::task::{MAX_LOST, TaskStatus};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio_util::task::AbortOnDropHandle;

use crate::Settings;
use crate::mailbox::Probe;
use crate::meters::count_ended;
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;
use crate::watch::MISSED_AFTER;
use crate::{alerting, watch};

/// How many expired leases are freed in one statement.
const BATCH: u32 = 1_000;
/// How many old rows are removed in one statement, and how often.
const PRUNE_BATCH: u32 = 1_000;
const PRUNE_EVERY: TimeDelta = TimeDelta::minutes(10);
/// How often fires are looked through for instants that made more than one task.
const AUDIT_EVERY: TimeDelta = TimeDelta::minutes(1);
/// How often it is looked whether there is something to alert somebody of; first that long after the start, when what
/// waited while nobody was there has had its turn.
const ALERT_EVERY: TimeDelta = TimeDelta::minutes(1);
/// How long to wait after the first round at the most, which left what can wait to the next.
const FIRST_SLEEP: Duration = Duration::from_secs(1);
/// How long to wait for what has expired already and was not freed.
const SHORTEST_SLEEP: Duration = Duration::from_millis(50);
/// How long to wait after the store was away: the Settler's turn comes first.
const AFTER_ERROR: Duration = Duration::from_secs(3);

pub(crate) enum ReconcilerMessage {
    /// How many messages wait?
    Probe(Probe),
    /// Look for what must be put right.
    Reconcile,
    /// Somebody outside the tree holds a lease of that length.
    LeaseMade(Duration),
    /// The health checks of plugins have looked, and this is to be told.
    Looked(Vec<Alert>),
}

/// Configuration of the Reconciler.
pub(crate) struct Reconciler {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    /// Where alerts go.
    pub(crate) alerts: Vec<Address>,
    /// What plugins look after.
    pub(crate) checks: Arc<[alerting::Check]>,
    pub(crate) settings: Settings,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

pub(crate) struct State {
    alarm: Alarm,
    /// Whether a round has ended: the first leaves to the next what can wait, for whatever waited while nobody was there comes
    /// first.
    has_looked: bool,
    pruned_at: Option<DateTime<Utc>>,
    audited_at: Option<DateTime<Utc>>,
    alerted_at: DateTime<Utc>,
    /// The last round of health checks, perhaps still under way.
    looking: Option<AbortOnDropHandle<()>>,
}

impl Actor for Reconciler {
    type Msg = ReconcilerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<ReconcilerMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        myself.cast(ReconcilerMessage::Reconcile)?;
        alerting::count_from_zero(&self.checks);
        Ok(State {
            alarm: Alarm::default(),
            has_looked: false,
            pruned_at: None,
            audited_at: None,
            alerted_at: self.clock.now(),
            looking: None,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ReconcilerMessage>,
        message: ReconcilerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ReconcilerMessage::Probe(probe) => {
                probe.answer();
                return Ok(());
            }
            ReconcilerMessage::LeaseMade(length) => {
                let ends_at = self.clock.now() + length;
                if state.alarm.at().is_some_and(|wake_at| ends_at < wake_at) {
                    state.alarm.set(&self.clock, ends_at, &myself, ReconcilerMessage::Reconcile);
                }
                return Ok(());
            }
            ReconcilerMessage::Looked(found) => {
                if let Err(error) = self.raise(found).await {
                    // The next round finds it again.
                    tracing::warn!(%error, "nobody was told what health checks found");
                }
                return Ok(());
            }
            ReconcilerMessage::Reconcile => {}
        }
        let wake_at = self.pass(state, &myself).await.unwrap_or_else(|error| {
            tracing::warn!(%error, "nothing could be put right");
            self.clock.now() + AFTER_ERROR
        });
        if wake_at > self.clock.now() {
            state.alarm.set(&self.clock, wake_at, &myself, ReconcilerMessage::Reconcile);
        } else {
            state.alarm.set_after(SHORTEST_SLEEP, &myself, ReconcilerMessage::Reconcile);
        }
        Ok(())
    }
}

impl Reconciler {
    /// One round: free expired leases, note missed fires, audit, alert and remove old rows now and then; then when to wake
    /// next.
    /// With nothing to put right it is one question to the store: every node asks it, day and night.
    async fn pass(&self, state: &mut State, myself: &ActorRef<ReconcilerMessage>) -> Result<DateTime<Utc>, StoreError> {
        let mut looked_at = self.clock.now();
        let mut next = self.store.next_repair().await?;
        if next.expiry_at.is_some_and(|at| at <= next.now) {
            self.free_expired().await?;
            looked_at = self.clock.now();
            next = self.store.next_repair().await?;
        }
        if next.fire_at.is_some_and(|at| (next.now - at).to_std().is_ok_and(|late| late > MISSED_AFTER)) {
            watch::note_missed(&*self.store).await?;
        }
        if state.has_looked && state.audited_at.is_none_or(|at| self.clock.now() - at >= AUDIT_EVERY) {
            watch::audit(&*self.store).await?;
            state.audited_at = Some(self.clock.now());
        }
        if self.clock.now() - state.alerted_at >= ALERT_EVERY {
            self.raise(alerting::of_store(&*self.store).await?).await?;
            self.look(state, next.now, myself);
            state.alerted_at = self.clock.now();
        }
        if state.has_looked && state.pruned_at.is_none_or(|at| self.clock.now() - at >= PRUNE_EVERY) {
            self.prune().await?;
            state.pruned_at = Some(self.clock.now());
        }
        let longest = if state.has_looked { self.settings.reconcile_interval } else { FIRST_SLEEP };
        state.has_looked = true;
        // From when it looked: a lease that was made during the rest of the round is found no later for it.
        let latest = looked_at + longest.min(self.settings.reconcile_interval).min(self.settings.lease);
        // The store's clock says how long it is until then.
        Ok(next.expiry_at.map_or(latest, |expiry_at| looked_at + (expiry_at - next.now)).min(latest))
    }

    /// Frees expired leases, all of them.
    async fn free_expired(&self) -> Result<(), StoreError> {
        loop {
            let Expired { freed, failed, by_topic } = self.store.expire(MAX_LOST, BATCH).await?;
            if freed + failed > 0 {
                metrics::counter!("punctual_leases_expired_total").increment(freed + failed);
                count_ended(&*self.store, TaskStatus::Failed, &by_topic).await;
                tracing::warn!(freed, failed, "leases expired");
                // A Supervisor that is gone takes us along.
                let _ = self.supervisor.cast(SupervisorMessage::TasksWritten);
                // A hint to other nodes: what they miss of it, their next look finds.
                let _ = self.store.announce(&News::of_tasks()).await;
            }
            if freed + failed < u64::from(BATCH) {
                return Ok(());
            }
        }
    }

    /// Has the plugins look beside us, unless they still do.
    fn look(&self, state: &mut State, now: DateTime<Utc>, myself: &ActorRef<ReconcilerMessage>) {
        if self.checks.is_empty() || state.looking.as_ref().is_some_and(|round| !round.is_finished()) {
            return;
        }
        let (checks, myself) = (Arc::clone(&self.checks), myself.clone());
        state.looking = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let found = alerting::of_plugins(&checks, now).await;
            // A Reconciler that is gone does not need to know.
            let _ = myself.cast(ReconcilerMessage::Looked(found));
        })));
    }

    /// Raises alerts, and has them sent.
    async fn raise(&self, alerts: Vec<Alert>) -> Result<(), StoreError> {
        if alerting::raise(&*self.store, &self.alerts, alerts).await? {
            // A Supervisor that is gone takes us along.
            let _ = self.supervisor.cast(SupervisorMessage::MessagesPosted);
            // A hint to other nodes: what they miss of it, their next look finds.
            let _ = self.store.announce(&News::of_messages()).await;
        }
        Ok(())
    }

    /// Removes what is old, in small batches.
    async fn prune(&self) -> Result<(), StoreError> {
        loop {
            let pruned = self.store.prune(self.settings.retention, PRUNE_BATCH).await?;
            let removed = [pruned.tasks, pruned.fires, pruned.messages, pruned.answers, pruned.audit, pruned.nodes];
            let most = removed.into_iter().max().unwrap_or(0);
            if most < u64::from(PRUNE_BATCH) {
                return Ok(());
            }
        }
    }
}
