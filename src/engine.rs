//! The engine: this process as a node of its store, with its actors at work. The service puts HTTP around it; the library
//! hands it to a program of somebody else's.
//!
//! Starting: the zone data is noted, the node's row is written, the topics of its handlers are stored, the actors begin.
//! Stopping: nothing more is ticked or claimed, another node may lead, attempts finish within the deadline, the rest is handed back, the node's row goes.

use std::sync::Arc;
use std::time::Duration;

use punctual_actors::{Deps, Handlers, Overheard, Running, Settings, TreeError};
use punctual_domain::alert::Address;
use punctual_domain::clock::Clock;
use punctual_domain::delivery::Transports;
use punctual_domain::id::NodeId;
use punctual_domain::json::Json;
use punctual_domain::news::News;
use punctual_domain::node::Node;
use punctual_domain::store::{Store, StoreError};
use punctual_domain::time::ZoneDatabase;
use tokio::sync::{Mutex, Notify, oneshot};
use tokio::task::JoinHandle;
use tokio_util::task::AbortOnDropHandle;
use tracing::warn;

use crate::config::Secret;
use crate::coordination::{self, Terms};
use crate::feed::Bridge;
use crate::http::State;
use crate::pulse::Pulse;
use crate::redis::Redis;
use crate::service::Start;
use crate::store_time::StoreTime;
use crate::telegraph::{Slip, Telegraph};
use crate::wake::{self, Listening, Wake};

/// How long saying goodbye to the store may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// All that an engine stands on.
pub(crate) struct Parts {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) database_url: Secret,
    pub(crate) zones: ZoneDatabase,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) handlers: Handlers,
    pub(crate) transports: Transports,
    /// Where alerts go.
    pub(crate) alerts: Vec<Address>,
    pub(crate) settings: Settings,
    pub(crate) redis: Option<Redis>,
    /// What is to be told through Redis.
    pub(crate) slip: Slip,
    /// How long leadership lasts unless it is renewed.
    pub(crate) leader_lease: Duration,
    /// What the node says about itself.
    pub(crate) about: serde_json::Value,
    pub(crate) state: Arc<State>,
    pub(crate) start: Start,
}

/// Why an engine cannot start.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EngineError {
    /// The database went away meanwhile.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The actors cannot be started.
    #[error(transparent)]
    Actors(#[from] TreeError),
}

/// A node that works, or waits if it was started paused.
pub(crate) struct Engine {
    store: Arc<dyn Store>,
    node_id: NodeId,
    time: Arc<StoreTime>,
    pulse: Arc<Pulse>,
    beats: JoinHandle<()>,
    /// `None` while paused, and where there are no others.
    hearing: Option<JoinHandle<()>>,
    /// What nodes tell each other through Redis; `None` without it, and where there are no others.
    telegraph: Option<Telegraph>,
    telegraph_hearing: Option<AbortOnDropHandle<()>>,
    /// What the actors stand on; they start anew when a pause ends.
    deps: Deps,
    /// `None` while paused.
    tree: Option<Running>,
    listening: Listening,
    overhear: Option<Overhear>,
    happened: Arc<Notify>,
}

/// What a running engine can be told; each says whether that was done.
pub(crate) enum Command {
    /// Work.
    Resume(oneshot::Sender<bool>),
    /// Stop working, and stay.
    Pause(oneshot::Sender<bool>),
}

/// Hears what the actors are told about tasks.
type Overhear = Arc<dyn Fn(&Overheard) + Send + Sync>;

impl Engine {
    pub(crate) async fn start(parts: Parts) -> Result<Self, EngineError> {
        let Parts { store, zones, clock, handlers, settings, .. } = parts;
        store.note_tz_version(zones.version()).await?;
        // Whoever leads with older zone data than ours is to know. A hint: it looks by itself now and then.
        let _ = store.announce(&News::of_leadership()).await;
        let time = Arc::new(StoreTime::new(Arc::clone(&clock)));
        time.measure(&*store).await?;
        let mut about = parts.about;
        if about.is_object() {
            about["paused"] = (parts.start == Start::Paused).into();
            about["redis"] = parts.redis.is_some().into();
        }
        let node = Node {
            id: NodeId::generate(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            tz_version: zones.version().to_owned(),
            about: Json::from_stored(about.to_string()),
            started_at: time.now(),
            seen_at: time.now(),
        };
        store.heartbeat(&node).await?;
        let node_id = node.id;
        register(&*store, &handlers).await?;
        let happened = Arc::new(Notify::new());
        let terms = Terms { lease: parts.leader_lease, heartbeat: settings.leader_heartbeat };
        let telegraph = match &parts.redis {
            Some(redis) if store.has_other_nodes() => {
                Some(Telegraph::start(redis.clone(), parts.slip, &*store, node_id).await?)
            }
            _ => None,
        };
        let coordination = coordination::choose(&store, parts.redis, node_id, terms).await?;
        let deps = Deps {
            store: Arc::clone(&store),
            clock: Arc::clone(&clock),
            zones,
            coordination,
            node: node_id,
            handlers,
            transports: parts.transports,
            alerts: parts.alerts,
            settings,
            happened: Arc::clone(&happened),
        };
        let pulse = Arc::new(Pulse {
            store: Arc::clone(&store),
            database_url: parts.database_url,
            clock,
            time: Arc::clone(&time),
            state: parts.state,
            node,
            every: settings.heartbeat,
            beating: Mutex::default(),
        });
        let mut engine = Self {
            store,
            node_id,
            time,
            beats: tokio::spawn(Arc::clone(&pulse).run()),
            pulse,
            hearing: None,
            telegraph,
            telegraph_hearing: None,
            deps,
            tree: None,
            listening: Listening::default(),
            overhear: None,
            happened,
        };
        if parts.start == Start::Working {
            let resumed = engine.resume().await;
            resumed.inspect_err(|_| engine.beats.abort())?;
        }
        Ok(engine)
    }

    /// Starts the actors, unless they work already.
    ///
    /// # Errors
    /// When they cannot be started.
    pub(crate) async fn resume(&mut self) -> Result<(), TreeError> {
        if self.tree.is_some() {
            return Ok(());
        }
        let tree = punctual_actors::start(self.deps.clone()).await?;
        self.listening.set(Some(tree.hints()));
        self.hearing = wake::hear(Arc::clone(&self.store), tree.hints());
        self.telegraph_hearing = self.telegraph.as_ref().map(|telegraph| telegraph.hear(tree.hints()));
        if let Some(overhear) = self.overhear.clone() {
            tree.overhear(move |heard| overhear(heard));
        }
        self.tree = Some(tree);
        Ok(())
    }

    /// Lets `overhear` hear what the actors are told about tasks, now and after every pause.
    pub(crate) fn overhear(&mut self, overhear: impl Fn(&Overheard) + Send + Sync + 'static) {
        let overhear: Overhear = Arc::new(overhear);
        self.overhear = Some(Arc::clone(&overhear));
        if let Some(tree) = &self.tree {
            tree.overhear(move |heard| overhear(heard));
        }
    }

    /// What plugins use of this node outside of handlers.
    pub(crate) fn plugin_engine(&self) -> Arc<dyn punctual_sdk::engine::Engine> {
        let listening = self.listening.clone();
        punctual_actors::plugin_engine(&self.deps, move || listening.hints())
    }

    /// Lets others see at once whether this node works. A hint: the next beat tells it too.
    pub(crate) async fn tell(&self) {
        let _ = tokio::time::timeout(GOODBYE, self.pulse.tell()).await;
    }

    pub(crate) fn node_id(&self) -> NodeId {
        self.node_id
    }

    /// The store's time as this node knows it.
    pub(crate) fn time(&self) -> Arc<StoreTime> {
        Arc::clone(&self.time)
    }

    /// Tells that attempts began or tasks ended in this process.
    pub(crate) fn happened(&self) -> Arc<Notify> {
        Arc::clone(&self.happened)
    }

    /// For those who write tasks; nobody listens here while paused.
    pub(crate) fn wake(&self) -> Wake {
        Wake::new(self.listening.clone(), &self.store, self.happened())
    }

    /// Returns when the actors have given up; never without actors.
    pub(crate) async fn gave_up(&mut self) {
        match &mut self.tree {
            Some(tree) => tree.gave_up().await,
            None => std::future::pending().await,
        }
        self.tree = None;
    }

    /// Stops ticking and claiming, and lets attempts finish until `within` has passed.
    pub(crate) async fn drain(&mut self, within: Duration) {
        self.listening.set(None);
        if let Some(hearing) = self.hearing.take() {
            hearing.abort();
        }
        self.telegraph_hearing = None;
        if let Some(tree) = self.tree.take()
            && let Err(error) = tree.drain(within).await
        {
            warn!(%error, "attempts not drained");
        }
    }

    /// Lets another node tell in Redis what happens.
    pub(crate) async fn resign_bridge(&self) {
        Bridge::resign(&*self.store, self.node_id).await;
    }

    /// Leaves the store in good order.
    pub(crate) async fn close(self) {
        self.beats.abort();
        if let Some(hearing) = &self.hearing {
            hearing.abort();
        }
        let goodbye = tokio::time::timeout(GOODBYE, self.store.remove_node(self.node_id)).await;
        if !matches!(goodbye, Ok(Ok(()))) {
            warn!(node_id = %self.node_id, "node not removed");
        }
        close(&*self.store).await;
    }
}

/// Closes a store, for as long as that may take.
pub(crate) async fn close(store: &dyn Store) {
    let closed = tokio::time::timeout(GOODBYE, store.close()).await;
    if !matches!(closed, Ok(Ok(()))) {
        warn!("database not closed in good order");
    }
}

/// Stores that topics have handlers: nodes without them then leave their tasks alone. It can be repeated.
pub(crate) async fn register(store: &dyn Store, handlers: &Handlers) -> Result<(), StoreError> {
    for topic in handlers.topics() {
        store.register_topic(topic).await?;
    }
    Ok(())
}
