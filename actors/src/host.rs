//! What this node provides to its plugins.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, NaiveDateTime, Utc};
use punctual_domain::delivery::{DeliveryError, Transports, after_the_only_attempt};
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::news::News;
use punctual_domain::notify::new_message;
use punctual_domain::store::{Store, Taken};
use punctual_domain::task::FireOfTask;
use punctual_domain::time::{Resolution, Zone, ZoneDatabase};
use punctual_sdk::engine::{Engine, Outgoing, ZoneRules};
use punctual_sdk::{Channel, Database, Error, NotifyError, Template, async_trait};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use crate::sending::Taking;
use crate::{Announcer, Hints};

/// How often somebody is looked after who sends the message that we should send.
const THEIRS: Duration = Duration::from_millis(500);

/// The engine behind the plugins of one node.
pub(crate) struct Host {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) hints: FindHints,
    /// Tells other nodes; `None` where there are none.
    pub(crate) announcer: Option<Announcer>,
    pub(crate) zones: ZoneDatabase,
    pub(crate) transports: Transports,
    pub(crate) message_lease: Duration,
    /// By plugin and slug.
    pub(crate) templates: HashMap<(&'static str, &'static str), Template>,
    /// By the names of their variables.
    pub(crate) settings: Arc<BTreeMap<String, String>>,
}

/// Leads to the tree, if there is one at the moment.
pub(crate) type FindHints = Arc<dyn Fn() -> Option<Hints> + Send + Sync>;

#[async_trait]
impl Engine for Host {
    fn database(&self) -> &Database {
        self.store.database()
    }

    fn tasks_written(&self) {
        if let Some(hints) = (self.hints)() {
            hints.tasks_written();
        }
    }

    async fn tasks_cancelled(&self, ids: Vec<Uuid>) {
        let ids: Vec<_> = ids.into_iter().map(TaskId).collect();
        if let Some(hints) = (self.hints)() {
            ids.iter().for_each(|id| hints.task_cancelled(*id));
        }
        if let Some(announcer) = &self.announcer {
            announcer.tell(News::of_cancelled(ids));
        }
    }

    async fn read_cell(&self, name: &str) -> Result<Option<(String, u64)>, Error> {
        let cell = self.store.state_cell(name).await?;
        Ok(cell.map(|(value, version)| (value.as_str().to_owned(), version)))
    }

    async fn write_cell(&self, name: &str, value: String, version: u64) -> Result<bool, Error> {
        // Both databases must be able to hold it.
        let value = Json::parse(value)?;
        Ok(self.store.put_state_cell(name, &value, version).await?.is_some())
    }

    async fn execution_of(
        &self,
        task_id: Uuid,
        schedule_id: Uuid,
        scheduled_at: DateTime<Utc>,
    ) -> Result<Option<Uuid>, Error> {
        let fire = FireOfTask { schedule_id: ScheduleId(schedule_id), scheduled_at };
        let found = self.store.execution_of(TaskId(task_id), Some(fire)).await?;
        Ok(found.map(|execution| execution.0))
    }

    fn template(&self, plugin: &str, slug: &str) -> Option<Template> {
        self.templates.get(&(plugin, slug)).copied()
    }

    fn setting(&self, variable: &str) -> Option<&str> {
        self.settings.get(variable).map(String::as_str)
    }

    fn zone(&self, name: &str) -> Result<Arc<dyn ZoneRules>, Error> {
        Ok(Arc::new(Rules(self.zones.zone(name)?)))
    }

    fn transport(&self, channel: Channel) -> Option<&str> {
        match channel {
            // Where it is set up on another node only, that one sends it.
            Channel::Email => Some(self.transports.usual()),
            Channel::Webhook | Channel::Queue => self.transports.named(channel.as_str()).map(|_| channel.as_str()),
        }
    }

    fn messages_posted(&self) {
        if let Some(hints) = (self.hints)() {
            hints.messages_posted();
        }
        // Where nothing here sends them, another node does, and need not look for them by itself.
        if let Some(announcer) = &self.announcer {
            announcer.tell(News::of_messages());
        }
    }

    async fn deliver(&self, message: Outgoing) -> Result<String, NotifyError> {
        let message = new_message(message).map_err(|invalid| NotifyError::Refused(invalid.to_string()))?;
        let lease = self.message_lease;
        loop {
            let taken_at = Instant::now();
            let taken = self.store.post_taken(message.clone(), lease).await;
            match taken.map_err(|error| NotifyError::Unavailable(error.into()))? {
                Taken::Sent { provider_id } => return Ok(provider_id),
                Taken::Theirs { .. } => sleep(THEIRS).await,
                Taken::Ours(message) => {
                    let taking = Taking { message, taken_at, lease };
                    let sent = match self.transports.named(&taking.message.transport) {
                        Some(transport) => taking.send(&**transport).await,
                        None => {
                            let transport = &taking.message.transport;
                            Err(DeliveryError::later(format!("nothing here sends messages by {transport}")))
                        }
                    };
                    taking.record(&self.store, &after_the_only_attempt(&sent)).await;
                    return sent.map_err(|error| match error {
                        DeliveryError::Later { error, .. } => NotifyError::NotSent(error),
                        DeliveryError::Never { error } => NotifyError::Refused(error),
                    });
                }
            }
        }
    }
}

struct Rules(Zone);

impl ZoneRules for Rules {
    fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        self.0.local(at)
    }

    fn instant(&self, local: NaiveDateTime) -> DateTime<Utc> {
        match self.0.resolve(local) {
            Resolution::Unique { at } => at,
            Resolution::Gap { end } => end,
            Resolution::Fold { first, .. } => first,
        }
    }
}
