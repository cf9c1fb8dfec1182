//! The service: the one place that builds and joins the parts, and stops them in order.
//!
//! Starting: zone data, plugins, database (and its schema), the check that nobody but this machine is listened to without API
//! keys, the socket, the node's row, the actors. Stopping: no new connections, nothing more is claimed, requests and
//! attempts under way finish within the drain deadline, the rest is handed back, then the node's row goes.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use punctual_actors::{Deps, Handlers, Running, Settings, TreeError};
use punctual_domain::clock::Clock;
use punctual_domain::id::NodeId;
use punctual_domain::json::Json;
use punctual_domain::node::Node;
use punctual_domain::store::{MigrationError, Store, StoreError};
use punctual_domain::time::{ZoneDatabase, ZoneDatabaseError};
use punctual_domain::topic::{Route, TopicDefinition, TopicPattern};
use punctual_sdk::Plugin;
use punctual_store::{ConnectError, Migrate, SchemaState};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::config::Config;
use crate::http::{self, Api, BoundedListener, Reach, State};
use crate::plugins::{self, BadPlugin};
use crate::pulse::Pulse;
use crate::redis::Redis;
use crate::store_time::StoreTime;
use crate::topics::TopicDirectory;

/// How long saying goodbye to the store may take.
const GOODBYE: Duration = Duration::from_secs(2);

/// How one process runs, beside its configuration.
#[derive(Clone, Default)]
pub struct Options {
    /// A clock that takes the place of the machine's and the database's; for tests that move time.
    pub clock: Option<Arc<dyn Clock>>,
    /// Whether to start without claiming or ticking.
    pub start: Start,
    /// Whether the schema is brought up to date.
    pub schema: Schema,
}

/// What happens to a schema that is not up to date.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Schema {
    /// It is brought up to date.
    #[default]
    Migrated,
    /// The start is refused.
    Required,
}

/// Whether work begins at once.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Start {
    /// At once.
    #[default]
    Working,
    /// Not in this process: tasks are taken, and run after a restart without it.
    Paused,
}

/// Why the service cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The configured zone data cannot be used.
    #[error(transparent)]
    ZoneData(#[from] ZoneDatabaseError),
    /// A plugin is broken.
    #[error(transparent)]
    Plugin(#[from] BadPlugin),
    /// The database cannot be used.
    #[error("the database {database} cannot be used: {error}")]
    Database {
        /// Its URL, without the password.
        database: String,
        /// Why.
        error: ConnectError,
    },
    /// A plugin's tables cannot be brought up to date.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// Plugins' tables are not up to date, and must not be changed.
    #[error("the database lacks migrations of plugins ({}): run `punctual migrate`", .0.join(", "))]
    MissingMigrations(Vec<String>),
    /// The Redis URL cannot be understood.
    #[error("REDIS_URL cannot be understood: {0}")]
    Redis(String),
    /// It would be open to everybody.
    #[error(
        "listening on {0} would let anybody in: there are no API keys; listen on 127.0.0.1, or make an API key first"
    )]
    Open(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {address}: {error}")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why.
        error: std::io::Error,
    },
    /// The database went away meanwhile.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The actors cannot be started.
    #[error(transparent)]
    Actors(#[from] TreeError),
}

/// Why the service ended without being told to.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The socket broke.
    #[error("the socket broke: {0}")]
    Socket(#[from] std::io::Error),
    /// Actors failed more often than can be put right from inside.
    #[error(transparent)]
    Actors(#[from] TreeError),
}

/// A service that is ready to serve.
pub struct Service {
    config: Config,
    store: Arc<dyn Store>,
    zones: ZoneDatabase,
    state: Arc<State>,
    node_id: NodeId,
    address: SocketAddr,
    listener: BoundedListener,
    router: axum::Router,
    pulse: JoinHandle<()>,
    /// `None` while paused.
    tree: Option<Running>,
}

impl Service {
    /// Builds everything, up to the bound socket.
    ///
    /// # Errors
    /// When a part is missing that the service cannot do without.
    pub async fn start(config: Config, options: Options) -> Result<Self, StartError> {
        let zones = ZoneDatabase::current(config.tzdir.as_deref())?;
        let plugins = plugins::enabled(&config.plugins);
        let handled = plugins::patterns(&plugins)?;
        // Before the database: a start that cannot succeed must not migrate it.
        let listen_error = |error| StartError::Listen { address: config.listen, error };
        let socket = TcpListener::bind(config.listen).await.map_err(listen_error)?;
        let address = socket.local_addr().map_err(listen_error)?;
        let store = connect(&config, &options).await?;
        prepare_plugins(&*store, &plugins, options.schema).await?;
        if Reach::of(config.listen) == Reach::Network && !any_keys(&*store).await? {
            return Err(StartError::Open(config.listen));
        }
        let newest = store.note_tz_version(zones.version()).await?;
        if newest != zones.version() {
            warn!(ours = zones.version(), newest, "zone data is older than another node's");
        }
        let redis = config.redis_url.as_ref().map(Redis::new).transpose();
        let redis = redis.map_err(|error| StartError::Redis(error.to_string()))?;

        let clock = options.clock.unwrap_or_else(|| Arc::new(SystemClock::new()));
        let time = Arc::new(StoreTime::new(Arc::clone(&clock)));
        time.measure(&*store).await?;
        let schema = SchemaState { version: SchemaState::ours(), oldest_compatible: 0 };
        let state = Arc::new(State::new(schema, options.start == Start::Paused));
        let node = node(&zones, &plugins, address, time.now());
        store.heartbeat(&node).await?;

        register_handlers(&*store, handled).await?;
        let tree = match options.start {
            Start::Working => {
                let deps = Deps {
                    store: Arc::clone(&store),
                    clock: Arc::clone(&clock),
                    node: node.id,
                    handlers: Handlers::of(plugins.iter().map(|plugin| &**plugin)),
                    settings: settings(&config),
                };
                Some(punctual_actors::start(deps).await?)
            }
            Start::Paused => None,
        };
        let api = Api::new(http::Parts {
            store: Arc::clone(&store),
            zones: zones.clone(),
            time: Arc::clone(&time),
            topics: TopicDirectory::new(Arc::clone(&store), plugins::topics(&plugins)),
            redis,
            state: Arc::clone(&state),
            reach: Reach::of(address),
            hints: tree.as_ref().map(Running::hints),
        });
        let node_id = node.id;
        let pulse = Pulse {
            store: Arc::clone(&store),
            database_url: config.database_url.clone(),
            clock,
            time,
            state: Arc::clone(&state),
            node,
            every: config.heartbeat,
        };
        Ok(Self {
            store,
            zones,
            state,
            node_id,
            address,
            listener: BoundedListener::new(socket),
            router: http::router(api),
            pulse: tokio::spawn(pulse.run()),
            tree,
            config,
        })
    }

    /// Where it listens; the real port, if any port was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a person who started it wants to know.
    pub fn announcement(&self) -> String {
        format!(
            "Punctual {version}\n  API        http://{address}\n  database   {database}\n  zone data  {tz} ({source})\n",
            version = env!("CARGO_PKG_VERSION"),
            address = self.address,
            database = self.config.database_url,
            tz = self.zones.version(),
            source = self.zones.source(),
        )
    }

    /// Serves until `shutdown` ends, then finishes what has begun, for as long as the drain deadline allows.
    ///
    /// # Errors
    /// When it cannot go on by itself.
    pub async fn run(mut self, shutdown: impl Future<Output = ()>) -> Result<(), RunError> {
        info!(
            address = %self.address,
            database = %self.config.database_url,
            tz_version = self.zones.version(),
            node_id = %self.node_id,
            "service started"
        );
        let stopping = CancellationToken::new();
        let stopped = stopping.clone().cancelled_owned();
        let mut serving =
            tokio::spawn(axum::serve(self.listener, self.router).with_graceful_shutdown(stopped).into_future());
        let ended = tokio::select! {
            served = &mut serving => {
                Err(RunError::Socket(served.unwrap_or_else(|error| Err(std::io::Error::other(error))).err()
                    .unwrap_or_else(|| std::io::Error::other("closed"))))
            }
            () = gave_up(&mut self.tree) => {
                self.tree = None;
                Err(TreeError::GaveUp.into())
            }
            () = shutdown => Ok(()),
        };

        self.state.drain();
        stopping.cancel();
        let deadline = self.config.drain;
        info!(deadline_seconds = deadline.as_secs(), "service stopping");
        let requests = async {
            if !serving.is_finished() && tokio::time::timeout(deadline, &mut serving).await.is_err() {
                warn!("drain deadline passed, connections cut");
                serving.abort();
            }
        };
        let attempts = async {
            if let Some(tree) = self.tree
                && let Err(error) = tree.drain(deadline).await
            {
                warn!(%error, "attempts not drained");
            }
        };
        tokio::join!(requests, attempts);
        self.pulse.abort();
        let goodbye = tokio::time::timeout(GOODBYE, self.store.remove_node(self.node_id)).await;
        if !matches!(goodbye, Ok(Ok(()))) {
            warn!(node_id = %self.node_id, "node not removed");
        }
        let closed = tokio::time::timeout(GOODBYE, self.store.close()).await;
        if !matches!(closed, Ok(Ok(()))) {
            warn!("database not closed in good order");
        }
        info!("service stopped");
        ended
    }
}

/// Ends when the actors have given up; never without actors.
async fn gave_up(tree: &mut Option<Running>) {
    match tree {
        Some(tree) => tree.gave_up().await,
        None => std::future::pending().await,
    }
}

/// Until nodes wake each other, each looks for what the others wrote.
const POLL_BESIDE_OTHERS: Duration = Duration::from_secs(1);

fn settings(config: &Config) -> Settings {
    let is_alone = config.database_url.expose().starts_with("sqlite:");
    Settings {
        max_tasks_per_poll: config.max_tasks_per_poll,
        poll_interval: if is_alone { config.poll_interval } else { config.poll_interval.min(POLL_BESIDE_OTHERS) },
        lease: config.lease,
        heartbeat: config.heartbeat,
        reconcile_interval: config.reconcile,
        retention: Duration::from_secs(u64::from(config.retention_days) * 24 * 60 * 60),
        ..Settings::default()
    }
}

async fn connect(config: &Config, options: &Options) -> Result<Arc<dyn Store>, StartError> {
    let migrate = match options.schema {
        Schema::Migrated => Migrate::Run,
        Schema::Required => Migrate::Check,
    };
    let clock = options.clock.clone();
    let options = punctual_store::Options { clock, migrate, ..punctual_store::Options::default() };
    punctual_store::connect(config.database_url.expose(), options)
        .await
        .map_err(|error| StartError::Database { database: config.database_url.to_string(), error })
}

/// Brings the plugins' own tables up to date, or checks that they are.
async fn prepare_plugins(store: &dyn Store, plugins: &[Box<dyn Plugin>], schema: Schema) -> Result<(), StartError> {
    match schema {
        Schema::Migrated => plugins::migrate(store, plugins).await?,
        Schema::Required => {
            let missing = plugins::missing_migrations(store, plugins).await?;
            if !missing.is_empty() {
                return Err(StartError::MissingMigrations(missing));
            }
        }
    }
    Ok(())
}

/// Stores that the plugins' topics have handlers: nodes without the plugin then leave their tasks alone.
async fn register_handlers(store: &dyn Store, handled: BTreeSet<TopicPattern>) -> Result<(), StoreError> {
    for topic in handled {
        // What the operator said about it stays.
        store.add_topic(&TopicDefinition::new(topic, Route::Handler)).await?;
    }
    Ok(())
}

async fn any_keys(store: &dyn Store) -> Result<bool, StoreError> {
    Ok(store.keys().await?.iter().any(|key| key.revoked_at.is_none()))
}

fn node(
    zones: &ZoneDatabase,
    plugins: &[Box<dyn Plugin>],
    address: SocketAddr,
    now: chrono::DateTime<chrono::Utc>,
) -> Node {
    let about = serde_json::json!({
        "listen": address.to_string(),
        "plugins": plugins.iter().map(|plugin| plugin.name()).collect::<Vec<_>>(),
        "topics": plugins::topics(plugins),
    });
    Node {
        id: NodeId::generate(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        tz_version: zones.version().to_owned(),
        about: Json::from_stored(about.to_string()),
        started_at: now,
        seen_at: now,
    }
}
