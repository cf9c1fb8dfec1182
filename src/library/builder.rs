//! Builds Punctual into a program.

use std::path::PathBuf;
use std::sync::{Arc, RwLock};
use std::time::Duration;

use punctual_actors::{Handlers, Settings, add_schedules, add_topics};
use punctual_domain::clock::Clock;
use punctual_domain::store::Store;
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::TopicPattern;
use punctual_sdk::{Handler, Plugin};
use punctual_store::{Migrate, SchemaState};

use super::error::BuildError;
use super::keeper::Keeper;
use super::transaction::Kind;
use super::{Inner, Open, Punctual};
use crate::clock::SystemClock;
use crate::config::{DeclaredTopic, Network, Secret};
use crate::delivery;
use crate::engine::{self, Engine};
use crate::http::{self, State};
use crate::plugins;
use crate::routes::courier::Courier;
use crate::routes::webhook::Webhooks;
use crate::service::{Schema, Start, declare_topics};
use crate::store_time::StoreTime;
use crate::templates::Templates;
use crate::topics::TopicDirectory;
use crate::wake::{Listening, Wake};

/// How long leadership among several processes lasts unless it is renewed.
const LEADER_LEASE: Duration = Duration::from_secs(15);
/// How soon a task is found that nobody told of.
const POLL: Duration = Duration::from_secs(1);

/// Adds a handler to those there are.
type AddHandler = Box<dyn FnOnce(Handlers) -> Handlers + Send>;

/// What Punctual is built of. End with [`Builder::start`] to run tasks here, or with [`Builder::connect`] to write them
/// for others to run.
#[must_use]
pub struct Builder {
    database: Secret,
    plugins: Vec<Arc<dyn Plugin>>,
    handlers: Vec<(String, AddHandler)>,
    webhooks: Vec<Webhook>,
    webhook_networks: Vec<String>,
    schema: Schema,
    zone_folder: Option<PathBuf>,
    clock: Option<Arc<dyn Clock>>,
}

/// A topic that a webhook serves.
struct Webhook {
    topic: String,
    url: String,
    secrets: Vec<String>,
}

impl Builder {
    pub(super) fn new() -> Self {
        Self {
            database: Secret::url("sqlite://punctual.db"),
            plugins: Vec::new(),
            handlers: Vec::new(),
            webhooks: Vec::new(),
            webhook_networks: Vec::new(),
            schema: Schema::default(),
            zone_folder: None,
            clock: None,
        }
    }

    /// Where tasks are kept: `sqlite://FILE`, `sqlite::memory:` or `postgres://USER:PASSWORD@HOST/DATABASE`. Without it, the
    /// file `punctual.db`.
    pub fn database(self, url: impl Into<String>) -> Self {
        Self { database: Secret::url(url), ..self }
    }

    /// Adds a plugin.
    pub fn plugin(mut self, plugin: impl Plugin + 'static) -> Self {
        self.plugins.push(Arc::new(plugin));
        self
    }

    /// Adds a handler for a topic, or with a trailing `.*` for all topics that begin so: a [`Handler`], or a closure from
    /// an [`Attempt`](crate::Attempt) to a future with an [`Outcome`](crate::Outcome) or a `Result` of one.
    pub fn handler(mut self, topic: impl Into<String>, handler: impl Handler + 'static) -> Self {
        let topic = topic.into();
        let name = topic.clone();
        self.handlers.push((topic, Box::new(move |handlers| handlers.with(&name, handler))));
        self
    }

    /// Has a topic, or with a trailing `.*` all topics that begin so, served by signed calls to a URL, as Standard Webhooks
    /// describes them. Two secrets sign during a rotation. The topic is stored so, for all processes on the database.
    pub fn webhook(
        mut self,
        topic: impl Into<String>,
        url: impl Into<String>,
        secrets: impl IntoIterator<Item = impl Into<String>>,
    ) -> Self {
        let secrets = secrets.into_iter().map(Into::into).collect();
        self.webhooks.push(Webhook { topic: topic.into(), url: url.into(), secrets });
        self
    }

    /// A private network that webhooks of this process may reach, such as `10.1.0.0/16`. Else they reach the open internet
    /// only.
    pub fn webhook_network(mut self, network: impl Into<String>) -> Self {
        self.webhook_networks.push(network.into());
        self
    }

    /// What happens to a schema that is not up to date; by default it is brought up to date.
    pub fn schema(self, schema: Schema) -> Self {
        Self { schema, ..self }
    }

    /// A folder of zone data, used if it is newer than the system's and that of this program.
    pub fn zone_folder(self, folder: impl Into<PathBuf>) -> Self {
        Self { zone_folder: Some(folder.into()), ..self }
    }

    /// A clock that takes the place of the machine's and the database's; for tests that move time.
    pub fn clock(self, clock: Arc<dyn Clock>) -> Self {
        Self { clock: Some(clock), ..self }
    }

    /// Connects, without running anything here: tasks are written for other processes to run. Plugins and handlers have no
    /// part in it.
    ///
    /// A SQLite file serves one process: there, [`start`](Builder::start) and share the handle.
    ///
    /// # Errors
    /// When the database or the zone data cannot be used.
    pub async fn connect(self) -> Result<Punctual, BuildError> {
        let zones = self.zones()?;
        let open = self.open().await?;
        open.time.measure(&*open.store).await?;
        Ok(self.finish(zones, open, None))
    }

    /// Connects, and runs due tasks here until [`Punctual::stop`], or until the last handle is gone.
    ///
    /// # Errors
    /// When the database, the zone data, a plugin or a handler's topic cannot be used.
    pub async fn start(mut self) -> Result<Punctual, BuildError> {
        plugins::patterns(&self.plugins)?;
        Templates::of(&self.plugins)?;
        let mut handlers = Handlers::of(self.plugins.iter().map(|plugin| &**plugin));
        for (topic, add) in std::mem::take(&mut self.handlers) {
            topic.parse::<TopicPattern>()?;
            handlers = add(handlers);
        }
        let (networks, topics) = self.webhooks()?;
        let about = serde_json::json!({
            "plugins": self.plugins.iter().map(|plugin| plugin.name()).collect::<Vec<_>>(),
            "topics": handlers.topics().map(TopicPattern::as_str).collect::<Vec<_>>(),
        });
        let zones = self.zones()?;
        let mut open = self.open().await?;
        if self.schema == Schema::Migrated {
            plugins::migrate(&*open.store, &self.plugins).await?;
        }
        declare_topics(&*open.store, &topics).await?;
        let clock = self.clock_beside(&*open.store).await?;
        let courier = Courier::new(&networks, Arc::clone(&clock)).map_err(BuildError::Webhooks)?;
        let webhooks = Webhooks { courier, store: Arc::clone(&open.store), clock: Arc::clone(&clock) };
        let schema = SchemaState { version: SchemaState::ours(), oldest_compatible: 0 };
        for plugin in &self.plugins {
            add_topics(&*open.store, &**plugin).await?;
        }
        let engine = Engine::start(engine::Parts {
            store: Arc::clone(&open.store),
            database_url: self.database.clone(),
            zones: zones.clone(),
            clock,
            handlers: handlers.with_carrier(Arc::new(webhooks)),
            transports: delivery::only_logging(),
            alerts: delivery::only_logged_alerts(),
            settings: self.settings(),
            redis: None,
            slip: Default::default(),
            leader_lease: LEADER_LEASE,
            about,
            state: Arc::new(State::new(schema, false)),
            start: Start::Working,
        })
        .await?;
        open.time = engine.time();
        for plugin in &self.plugins {
            add_schedules(&*open.store, &zones, open.time.now(), &**plugin).await?;
        }
        engine.wake().schedules_changed();
        open.wake = engine.wake();
        Ok(self.finish(zones, open, Some(Keeper::of(engine))))
    }

    /// The private networks that webhooks may reach, and the topics that they serve.
    fn webhooks(&self) -> Result<(Vec<Network>, Vec<DeclaredTopic>), BuildError> {
        let networks = self.webhook_networks.iter().map(|text| {
            text.parse().map_err(|expected| BuildError::WebhookNetwork { network: text.clone(), expected })
        });
        let networks = networks.collect::<Result<Vec<Network>, _>>()?;
        let topics = self.webhooks.iter().map(|Webhook { topic, url, secrets }| {
            let route = serde_json::json!({"route": {"type": "webhook", "url": url, "secrets": secrets}});
            http::declared_topic(topic, &route.to_string(), &networks).map_err(|refused| {
                let refused: Vec<_> = refused.iter().map(|(field, message)| format!("{field} {message}")).collect();
                BuildError::Webhook { topic: topic.clone(), error: refused.join("; ") }
            })
        });
        let topics = topics.collect::<Result<_, _>>()?;
        Ok((networks, topics))
    }

    fn settings(&self) -> Settings {
        match self.kind() {
            // The program writes past the actors, in transactions of its own, and may forget to say so.
            Kind::Sqlite => Settings { poll_interval: POLL, ..Settings::default() },
            Kind::Postgres => Settings::default(),
        }
    }

    fn zones(&self) -> Result<ZoneDatabase, BuildError> {
        ZoneDatabase::current(self.zone_folder.as_deref()).map_err(|error| {
            let folder = self.zone_folder.clone().unwrap_or_default();
            BuildError::ZoneData { folder, error }
        })
    }

    async fn open(&self) -> Result<Open, BuildError> {
        let migrate = match self.schema {
            Schema::Migrated => Migrate::Run,
            Schema::Required => Migrate::Check,
        };
        let options = punctual_store::Options { clock: self.clock.clone(), migrate, ..Default::default() };
        let store = punctual_store::connect(self.database.expose(), options)
            .await
            .map_err(|error| BuildError::Database { database: self.database.to_string(), error })?;
        Ok(Open {
            topics: TopicDirectory::new(Arc::clone(&store), Default::default(), false),
            time: Arc::new(StoreTime::new(self.clock_beside(&*store).await?)),
            wake: Wake::new(Listening::default(), &store, Arc::default()),
            store,
        })
    }

    fn finish(self, zones: ZoneDatabase, open: Open, keeper: Option<Keeper>) -> Punctual {
        let (kind, open) = (self.kind(), RwLock::new(Some(Arc::new(open))));
        Punctual(Arc::new(Inner { kind, clock: self.clock, zones, keeper, open }))
    }

    fn kind(&self) -> Kind {
        Kind::of(self.database.expose())
    }

    async fn clock_beside(&self, store: &dyn Store) -> Result<Arc<dyn Clock>, BuildError> {
        Ok(match &self.clock {
            Some(clock) => Arc::clone(clock),
            None => Arc::new(SystemClock::beside(store).await?),
        })
    }
}
