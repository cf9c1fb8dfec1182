//! The service: the one place that builds and joins the parts, and stops them in order.
//!
//! Starting: zone data, plugins, database (and its schema), the check that nobody but this machine is listened to without API
//! keys, the socket, the engine. Stopping: no new connections, then requests and the engine's attempts finish within the
//! drain deadline, and the engine closes the store.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::connect_info::IntoMakeServiceWithConnectInfo;
use chrono::TimeDelta;
use punctual_actors::{Handlers, Overheard, Settings, TreeError, add_schedules, add_topics};
use punctual_domain::clock::Clock;
use punctual_domain::news::News;
use punctual_domain::store::{MigrationError, Store, StoreError};
use punctual_domain::time::{ZoneDatabase, ZoneDatabaseError};
use punctual_domain::topic::Route;
use punctual_sdk::Plugin;
use punctual_store::{Announced, ConnectError, Migrate, SchemaState};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;
use tracing::{info, warn};

use crate::clock::SystemClock;
use crate::config::{Config, DeclaredTopic};
use crate::delivery::{self, DeliverySetupError};
use crate::engine::{self, Command, Engine, EngineError};
use crate::feed::{Bridge, Feed};
use crate::http::{self, Api, BoundedListener, Headers, PluginRoutes, Reach, State};
use crate::inspect::Inspector;
use crate::plugins::{self, BadPlugin, Plugins};
use crate::redis::Redis;
use crate::routes::bullmq::{self, Attention, Bullmq, Keeper, Queues};
use crate::routes::courier::Courier;
use crate::routes::pull::{self, PullDesk};
use crate::routes::webhook::Webhooks;
use crate::telegraph::Slip;
use crate::telemetry::Exporter;
use crate::templates::Templates;
use crate::topics::TopicDirectory;

/// How many commands to the engine may wait.
const COMMANDS: usize = 16;

/// How much of the drain is left for requests under way, whatever still runs; at most half of it.
const LAST_REQUESTS: Duration = Duration::from_secs(5);

/// How one process runs, beside its configuration.
#[derive(Clone, Default)]
pub struct Options {
    /// A clock that takes the place of the machine's and the database's; for tests that move time.
    pub clock: Option<Arc<dyn Clock>>,
    /// Whether to start without claiming or ticking.
    pub start: Start,
    /// Whether the schema is brought up to date.
    pub schema: Schema,
    /// The plugins that the configuration can turn on.
    pub plugins: Plugins,
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
    /// Once it is resumed: until then tasks are taken, and none run.
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
    /// Messages cannot be sent as configured.
    #[error(transparent)]
    Delivery(#[from] DeliverySetupError),
    /// No webhook could be sent.
    #[error("webhooks cannot be sent: {0}")]
    Webhooks(String),
    /// It would be open to everybody.
    #[error(
        "listening on {0} would let anybody in: there are no API keys; listen on 127.0.0.1, or make an API key first (punctual key create --database URL)"
    )]
    Open(SocketAddr),
    /// The address cannot be listened on.
    #[error(
        "cannot listen on {address}: {error}; another address can be given by --listen, such as 127.0.0.1:0 for any free port"
    )]
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

impl From<EngineError> for StartError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => Self::Store(error),
            EngineError::Actors(error) => Self::Actors(error),
        }
    }
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
    zones: ZoneDatabase,
    state: Arc<State>,
    feed: Feed,
    engine: Engine,
    /// Looks after what queues have; none without Redis.
    keeper: Option<Keeper>,
    /// Tells in Redis what happens; none without it.
    bridge: Option<AbortOnDropHandle<()>>,
    address: SocketAddr,
    listener: BoundedListener,
    router: axum::Router,
    metrics: Option<Metrics>,
    commands: mpsc::Receiver<Command>,
}

/// An address that is for metrics alone.
struct Metrics {
    address: SocketAddr,
    socket: TcpListener,
    router: axum::Router,
}

impl Service {
    /// Builds everything, up to the bound socket.
    ///
    /// # Errors
    /// When a part is missing that the service cannot do without.
    pub async fn start(config: Config, options: Options) -> Result<Self, StartError> {
        let zones = ZoneDatabase::current(config.tzdir.as_deref())?;
        let plugins = options.plugins.enabled(&config.plugins);
        plugins::patterns(&plugins)?;
        let templates = Templates::of(&plugins)?;
        let plugin_routes = PluginRoutes::of(&plugins)?;
        // Before the database: a start that cannot succeed must not migrate it.
        let (socket, address) = listen(config.listen).await?;
        let metrics_socket = match config.metrics_listen {
            Some(same) if same == config.listen && same.port() != 0 => None,
            Some(own) => Some(listen(own).await?),
            None => None,
        };
        Exporter::of_process();
        if Reach::of(config.listen) == Reach::Network && is_empty(&config).await? {
            return Err(StartError::Open(config.listen));
        }
        let slip = Slip::default();
        let store = connect(&config, &options, &slip).await?;
        prepare_plugins(&*store, &plugins, options.schema).await?;
        if Reach::of(config.listen) == Reach::Network && !store.has_valid_key().await? {
            return Err(StartError::Open(config.listen));
        }
        let redis = config.redis_url.as_ref().map(Redis::new).transpose();
        let redis = redis.map_err(|error| StartError::Redis(error.to_string()))?;

        let clock: Arc<dyn Clock> = match options.clock.clone() {
            Some(clock) => clock,
            None => Arc::new(SystemClock::beside(&*store).await?),
        };
        let schema = SchemaState { version: SchemaState::ours(), oldest_compatible: 0 };
        let state = Arc::new(State::new(schema, options.start == Start::Paused));
        let courier = Courier::new(&config.webhook_allow, Arc::clone(&clock)).map_err(StartError::Webhooks)?;
        let queues = redis.clone().map(|redis| Queues::new(redis, Arc::clone(&clock)));
        let attention = Arc::new(Attention::default());
        let to_queues = queues.clone().map(|queues| delivery::ToQueues {
            store: Arc::clone(&store),
            attention: Arc::clone(&attention),
            queues,
        });
        let transports = delivery::transports(&config.notify, &courier, to_queues, &clock)?;
        delivery::redirect_mail(&*store, &transports).await?;
        let webhooks = Webhooks { courier, store: Arc::clone(&store), clock: Arc::clone(&clock) };
        for plugin in &plugins {
            add_topics(&*store, &**plugin).await?;
        }
        let mut handlers = Handlers::of(plugins.iter().map(|plugin| &**plugin))
            .with_carrier(Arc::new(webhooks))
            .with_settings(plugin_settings(&config));
        if let Some(queues) = &queues {
            let (store, attention) = (Arc::clone(&store), Arc::clone(&attention));
            let refusing = Arc::default();
            handlers = handlers.with_carrier(Arc::new(Bullmq { queues: queues.clone(), store, attention, refusing }));
        }
        // Before anything runs: the actors go by the definitions that they find.
        engine::register(&*store, &handlers).await?;
        declare_topics(&*store, &config.topics).await?;
        let mut engine = Engine::start(engine::Parts {
            store: Arc::clone(&store),
            database_url: config.database_url.clone(),
            zones: zones.clone(),
            clock: Arc::clone(&clock),
            handlers,
            transports,
            alerts: delivery::alert_addresses(&config.notify),
            settings: settings(&config),
            redis: redis.clone(),
            slip,
            leader_lease: config.leader_lease,
            about: about(&plugins, address, options.start, config.heartbeat),
            state: Arc::clone(&state),
            start: options.start,
        })
        .await?;
        for plugin in &plugins {
            add_schedules(&*store, &zones, engine.time().now(), &**plugin).await?;
        }
        engine.wake().schedules_changed();
        let topics = Arc::new(TopicDirectory::new(Arc::clone(&store), plugins::topics(&plugins), redis.is_some()));
        let wake = Arc::new(engine.wake());
        let desk = PullDesk::new(pull::Parts {
            store: Arc::clone(&store),
            clock,
            time: engine.time(),
            topics: Arc::clone(&topics),
            wake: Arc::clone(&wake),
            node: engine.node_id(),
        });
        let heard = desk.clone();
        let keeper = queues.map(|queues| {
            Keeper::start(bullmq::Parts {
                queues,
                store: Arc::clone(&store),
                attention: Arc::clone(&attention),
                topics: Arc::clone(&topics),
                wake: Arc::clone(&wake),
                time: engine.time(),
                node: engine.node_id(),
                every: config.reconcile,
            })
        });
        engine.overhear(move |overheard| match overheard {
            Overheard::Cancelled(id) => attention.cancelled(*id),
            overheard => heard.heard(overheard),
        });
        let (commands, commanded) = mpsc::channel(COMMANDS);
        let feed = Feed::new(Arc::clone(&store), engine.happened());
        let bridge = redis.clone().map(|redis| {
            let (feed, store, lease) = (feed.clone(), Arc::clone(&store), config.leader_lease);
            Bridge { feed, store, redis, node: engine.node_id(), lease }.start()
        });
        let api = Arc::new(Api::new(http::Parts {
            store: Arc::clone(&store),
            zones: zones.clone(),
            time: engine.time(),
            misfire_threshold: config.misfire_threshold,
            inspector: Inspector {
                store: Arc::clone(&store),
                zones: zones.clone(),
                misfire_threshold: TimeDelta::from_std(config.misfire_threshold).unwrap_or(TimeDelta::MAX),
                tzdir: config.tzdir.clone(),
                progress: None,
            },
            topics,
            redis,
            state: Arc::clone(&state),
            reach: Reach::of(address),
            wake,
            node: engine.node_id(),
            desk,
            webhook_allow: config.webhook_allow.clone(),
            commands,
            rate_limit: config.rate_limit,
            feed: feed.clone(),
            templates,
            plugins: plugin_routes.with_engine(engine.plugin_engine()),
        }));
        Ok(Self {
            zones,
            state,
            feed,
            engine,
            keeper,
            bridge,
            address,
            listener: BoundedListener::new(socket),
            router: http::router(&api),
            metrics: metrics_socket.map(|(socket, address)| Metrics {
                address,
                socket,
                router: http::metrics_router(api),
            }),
            commands: commanded,
            config,
        })
    }

    /// Where it listens; the real port, if any port was asked for.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What a person who started it wants to know.
    pub fn announcement(&self) -> String {
        let metrics = self.metrics.as_ref();
        let metrics = metrics.map_or_else(String::new, |metrics| format!("  metrics    http://{}\n", metrics.address));
        format!(
            "Punctual {version}\n  API        http://{address}\n  dashboard  http://{address}/\n{metrics}  database   {database}\n  zone data  {tz} ({source})\n",
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
            node_id = %self.engine.node_id(),
            "service started"
        );
        let _upkeep = Exporter::of_process().keep_up();
        // They are shown to the last.
        let _metrics = self.metrics.map(|Metrics { socket, router, .. }| {
            AbortOnDropHandle::new(tokio::spawn(
                axum::serve(BoundedListener::new(socket), with_headers(router)).into_future(),
            ))
        });
        let stopping = CancellationToken::new();
        let stopped = stopping.clone().cancelled_owned();
        let mut serving = tokio::spawn(
            axum::serve(self.listener, with_headers(self.router)).with_graceful_shutdown(stopped).into_future(),
        );
        let mut shutdown = std::pin::pin!(shutdown);
        let ended = loop {
            tokio::select! {
                served = &mut serving => {
                    break Err(RunError::Socket(served.unwrap_or_else(|error| Err(std::io::Error::other(error))).err()
                        .unwrap_or_else(|| std::io::Error::other("closed"))));
                }
                () = self.engine.gave_up() => break Err(TreeError::GaveUp.into()),
                () = &mut shutdown => break Ok(()),
                Some(command) = self.commands.recv() => obey(&mut self.engine, &self.state, command, self.config.drain).await,
            }
        };

        self.state.drain();
        // Whoever gave a command, or gives one now, is told that nobody carries it out.
        drop(self.commands);
        let deadline = self.config.drain;
        info!(deadline_seconds = deadline.as_secs(), "service stopping");
        // Until nothing runs here any more, probes see it drain, listeners hear how it ends, and workers settle what they hold.
        let close = || {
            self.feed.close();
            stopping.cancel();
        };
        let work = async {
            self.engine.drain(deadline).await;
            close();
        };
        let in_time = async {
            tokio::select! {
                () = tokio::time::sleep(deadline - (deadline / 2).min(LAST_REQUESTS)) => close(),
                () = stopping.cancelled() => {}
            }
        };
        let requests = async {
            if !serving.is_finished() && tokio::time::timeout(deadline, &mut serving).await.is_err() {
                warn!("drain deadline passed, connections cut");
                serving.abort();
            }
        };
        tokio::join!(requests, work, in_time);
        if let Some(keeper) = self.keeper {
            keeper.stop().await;
        }
        if self.bridge.take().is_some() {
            self.engine.resign_bridge().await;
        }
        self.engine.close().await;
        info!("service stopped");
        ended
    }
}

/// Routes that tell each connection when the headers of a request have been read.
fn with_headers(router: axum::Router) -> IntoMakeServiceWithConnectInfo<axum::Router, Headers> {
    router.into_make_service_with_connect_info()
}

async fn listen(address: SocketAddr) -> Result<(TcpListener, SocketAddr), StartError> {
    let listen_error = |error| StartError::Listen { address, error };
    let socket = TcpListener::bind(address).await.map_err(listen_error)?;
    let address = socket.local_addr().map_err(listen_error)?;
    Ok((socket, address))
}

/// Carries out a command. Whoever gave it may have gone.
async fn obey(engine: &mut Engine, state: &State, command: Command, drain: Duration) {
    match command {
        Command::Resume(done) => {
            let resumed = engine.resume().await.inspect_err(|error| warn!(%error, "work not resumed")).is_ok();
            if resumed {
                state.pause(false);
                engine.tell().await;
                info!("work resumed");
            }
            let _ = done.send(resumed);
        }
        Command::Pause(done) => {
            // First: workers then get nothing more either.
            state.pause(true);
            engine.drain(drain).await;
            engine.tell().await;
            info!("work paused");
            let _ = done.send(true);
        }
    }
}

fn plugin_settings(config: &Config) -> BTreeMap<String, String> {
    let said = config.plugin_settings.iter();
    said.map(|(variable, said)| ((*variable).to_owned(), said.expose().to_owned())).collect()
}

fn settings(config: &Config) -> Settings {
    Settings {
        max_tasks_per_poll: config.max_tasks_per_poll,
        poll_interval: config.poll_interval,
        lease: config.lease,
        heartbeat: config.heartbeat,
        reconcile_interval: config.reconcile,
        leader_heartbeat: config.leader_heartbeat,
        misfire_threshold: config.misfire_threshold,
        retention: Duration::from_secs(u64::from(config.retention_days) * 24 * 60 * 60),
        // Mail servers are slower than databases.
        message_lease: config.lease * 4,
        ..Settings::default()
    }
}

async fn connect(config: &Config, options: &Options, slip: &Slip) -> Result<Arc<dyn Store>, StartError> {
    let migrate = match options.schema {
        Schema::Migrated => Migrate::Run,
        Schema::Required => Migrate::Check,
    };
    let clock = options.clock.clone();
    let slip = slip.clone();
    // Without Redis nobody would ever read it.
    let announced = config.redis_url.as_ref().map(|_| Arc::new(move |news: &News| slip.take_down(news)) as Announced);
    let options = punctual_store::Options { clock, migrate, announced, ..punctual_store::Options::default() };
    punctual_store::connect(config.database_url.expose(), options)
        .await
        .map_err(|error| StartError::Database { database: config.database_url.to_string(), error })
}

/// Brings the plugins' own tables up to date, or checks that they are.
async fn prepare_plugins(store: &dyn Store, plugins: &[Arc<dyn Plugin>], schema: Schema) -> Result<(), StartError> {
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

/// Writes the topics that the configuration declares: it wins over what was said by the API, but for whether they are
/// paused, where it does not say.
pub(crate) async fn declare_topics(store: &dyn Store, declared: &[DeclaredTopic]) -> Result<(), StoreError> {
    let known = store.topics().await?;
    for DeclaredTopic { definition, says_route, says_paused } in declared {
        let mut definition = definition.clone();
        if let Some(known) = known.iter().find(|known| known.name == definition.name) {
            if !says_route && known.route == Route::Handler {
                definition.route = Route::Handler;
            }
            if !says_paused {
                definition.paused = known.paused;
            }
        }
        store.put_topic(&definition).await?;
    }
    Ok(())
}

/// Whether nothing of ours is in the database yet, so that there cannot be any keys either.
async fn is_empty(config: &Config) -> Result<bool, StartError> {
    let schema = punctual_store::schema_state(config.database_url.expose()).await;
    let schema = schema.map_err(|error| StartError::Database { database: config.database_url.to_string(), error })?;
    Ok(schema == SchemaState::EMPTY)
}

/// What the node says about itself.
fn about(plugins: &[Arc<dyn Plugin>], address: SocketAddr, start: Start, heartbeat: Duration) -> serde_json::Value {
    serde_json::json!({
        "listen": address.to_string(),
        "beat_ms": heartbeat.as_millis() as u64,
        "plugins": plugins.iter().map(|plugin| plugin.name()).collect::<Vec<_>>(),
        "topics": plugins::topics(plugins),
        "paused": start == Start::Paused,
    })
}
