//! The Elector: whether this node leads.
//!
//! Owns this node's standing. What wakes it: the heartbeat while it leads; while another does, the end of that one's lease
//! as it was when last seen, and the news that it resigned. It tells the Ticker every change and every renewal, with the
//! instant of the monotonic clock until which leading is certain: a leader that cannot renew stops before another may
//! begin.
//!
//! - It never leads with older zone data than the newest that any node has noted, and says so.
//! - Any error on the way counts as not leading, at once.
//! - Whenever it comes to lead, that is noted in the store: what changes too often is told from all nodes' notes together.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::coordination::{Coordination, Standing};
use punctual_domain::id::NodeId;
use punctual_domain::news::News;
use punctual_domain::store::Store;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;

use crate::mailbox::Probe;
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;

/// How soon it is asked again who leads when nobody could tell.
const IN_DOUBT: Duration = Duration::from_millis(500);
/// The least time between two looks at a lead that is about to be free.
const SHORTEST_WAIT: Duration = Duration::from_millis(20);
/// How often it is looked whether another node has newer zone data. One that comes with such says so.
const ZONES_EVERY: Duration = Duration::from_secs(60);
/// The part of its lease that a leader leaves unused.
const MARGIN: u32 = 10;

pub(crate) enum ElectorMessage {
    /// How many messages wait?
    Probe(Probe),
    /// Find out who leads, and tell.
    Elect,
    /// Another node may lead than did: find out at once.
    ElectAnew,
    /// Lead no more, and answer once others may.
    Resign(RpcReplyPort<()>),
}

/// Configuration of the Elector.
pub(crate) struct Elector {
    pub(crate) coordination: Arc<dyn Coordination>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) node: NodeId,
    /// How often the lead is renewed.
    pub(crate) heartbeat: Duration,
    /// The release of this node's zone data.
    pub(crate) tz_version: String,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

pub(crate) struct State {
    standing: Standing,
    /// It is noted in the store that we lead.
    is_noted: bool,
    /// When the zone data of all nodes was last looked at.
    zones_seen_at: Option<Instant>,
    /// The newer zone data that keeps us from leading.
    barred_by: Option<String>,
    /// Nobody could tell who leads the last time.
    in_doubt: bool,
    resigned: bool,
    /// By the monotonic clock, as leases are: setting a machine's clock makes no leader late.
    alarm: Alarm,
}

impl Actor for Elector {
    type Msg = ElectorMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, myself: ActorRef<ElectorMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        metrics::gauge!("punctual_tzdata_info", "version" => self.tz_version.clone()).set(1.0);
        metrics::gauge!("punctual_leader").set(0.0);
        metrics::counter!("punctual_leader_changes_total").increment(0);
        myself.cast(ElectorMessage::Elect)?;
        Ok(State {
            standing: Standing::Follows(Duration::ZERO),
            is_noted: false,
            zones_seen_at: None,
            barred_by: None,
            in_doubt: false,
            resigned: false,
            alarm: Alarm::default(),
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<ElectorMessage>,
        message: ElectorMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            ElectorMessage::Probe(probe) => probe.answer(),
            ElectorMessage::Elect => self.elect(&myself, state).await,
            ElectorMessage::ElectAnew => {
                state.zones_seen_at = None;
                self.elect(&myself, state).await;
            }
            ElectorMessage::Resign(reply) => {
                state.resigned = true;
                state.alarm.clear();
                let led = state.standing.leads();
                note_standing(state, Standing::Follows(Duration::ZERO));
                if led {
                    self.let_go().await;
                }
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
        }
        Ok(())
    }
}

impl Elector {
    async fn elect(&self, myself: &ActorRef<ElectorMessage>, state: &mut State) {
        if !state.resigned
            && let Some(wait) = self.pass(state).await
        {
            state.alarm.set_after(wait, myself, ElectorMessage::Elect);
        }
    }

    /// One round: finds out who leads, and tells; then how long until the next, if there is one.
    async fn pass(&self, state: &mut State) -> Option<Duration> {
        let asked_at = Instant::now();
        let standing = match self.find_out(state).await {
            Ok(standing) => {
                if std::mem::take(&mut state.in_doubt) {
                    tracing::info!("it is known again who leads");
                }
                standing
            }
            Err(error) => {
                if !std::mem::replace(&mut state.in_doubt, true) {
                    tracing::warn!(error, "this node does not lead as long as it cannot tell who does");
                }
                Standing::Follows(IN_DOUBT.min(self.heartbeat))
            }
        };
        note_standing(state, standing);
        match standing {
            Standing::LeadsAlone => {
                self.tell(SupervisorMessage::Leads { until: None });
                None
            }
            Standing::Leads(lease) => {
                self.tell(SupervisorMessage::Leads { until: Some(asked_at + lease - lease / MARGIN) });
                // After the telling: nothing is held up by it, and what fails is noted with the next renewal.
                state.is_noted = state.is_noted || self.store.note_leader(self.node).await.is_ok();
                Some(self.heartbeat)
            }
            Standing::Follows(left) => {
                self.tell(SupervisorMessage::Follows);
                state.is_noted = false;
                Some(left.max(SHORTEST_WAIT))
            }
        }
    }

    async fn find_out(&self, state: &mut State) -> Result<Standing, String> {
        let is_barred = |state: &State| state.barred_by.is_some();
        if state.zones_seen_at.is_none_or(|at| at.elapsed() >= ZONES_EVERY) {
            self.look_at_zones(state).await?;
        }
        if !is_barred(state) {
            let standing = self.coordination.lead().await.map_err(|error| error.to_string())?;
            if !standing.leads() || state.standing.leads() {
                return Ok(standing);
            }
            // Another node may have come with newer zone data since we last looked.
            self.look_at_zones(state).await?;
            if !is_barred(state) {
                return Ok(standing);
            }
            self.let_go().await;
        } else if state.standing.leads() {
            self.let_go().await;
        }
        Ok(Standing::Follows(ZONES_EVERY))
    }

    /// Finds out whether another node has newer zone data than we.
    async fn look_at_zones(&self, state: &mut State) -> Result<(), String> {
        let newest = self.store.note_tz_version(&self.tz_version).await.map_err(|error| error.to_string())?;
        let barred_by = Some(newest).filter(|newest| *newest != self.tz_version);
        if state.barred_by != barred_by {
            match &barred_by {
                Some(newest) => tracing::error!(
                    ours = self.tz_version,
                    newest,
                    "the zone data of this node is older than another's: it does not lead until that is updated"
                ),
                None => tracing::info!(ours = self.tz_version, "the zone data of this node is the newest: it may lead"),
            }
        }
        state.barred_by = barred_by;
        state.zones_seen_at = Some(Instant::now());
        Ok(())
    }

    /// Lets go of the lead, and tells those who wait for it.
    async fn let_go(&self) {
        match self.coordination.resign().await {
            // A hint: whoever misses it looks by itself.
            Ok(()) => drop(self.store.announce(&News::of_leadership()).await),
            Err(error) => tracing::warn!(%error, "the lead ends with its lease"),
        }
    }

    fn tell(&self, message: SupervisorMessage) {
        // A Supervisor that is gone takes us along.
        let _ = self.supervisor.cast(message);
    }
}

fn note_standing(state: &mut State, standing: Standing) {
    let (did, does) = (state.standing.leads(), standing.leads());
    state.standing = standing;
    if did == does {
        return;
    }
    metrics::gauge!("punctual_leader").set(if does { 1.0 } else { 0.0 });
    match standing {
        Standing::LeadsAlone => {}
        Standing::Leads(_) => {
            metrics::counter!("punctual_leader_changes_total").increment(1);
            tracing::info!("this node leads");
        }
        Standing::Follows(_) => tracing::info!("this node does not lead any more"),
    }
}
