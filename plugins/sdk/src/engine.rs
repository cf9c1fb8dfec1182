//! The other side of the SDK: what the engine that runs plugins provides. Plugins need nothing of this.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, NaiveDateTime, Utc};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, SqliteConnection};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::{Answer, Channel, Context, Database, Either, EnqueueError, Error, NewTask, NotifyError, Template};

pub use crate::database::Turn;

/// How long a plugin's write transaction may stay open on SQLite, where it keeps everybody else from writing.
pub const LONGEST_TRANSACTION: Duration = Duration::from_secs(3);

/// What a node provides to its plugins.
#[async_trait]
pub trait Engine: Send + Sync {
    /// The database.
    fn database(&self) -> &Database;

    /// Says that tasks were written and committed.
    fn tasks_written(&self);

    /// Says that tasks were cancelled and that is committed: attempts of theirs are told to stop.
    async fn tasks_cancelled(&self, ids: Vec<Uuid>);

    /// A state cell's value as JSON, with its version.
    async fn read_cell(&self, name: &str) -> Result<Option<(String, u64)>, Error>;

    /// Writes a state cell if it still has `version` (0: if it is not there); `false` if somebody else was first.
    async fn write_cell(&self, name: &str, value: String, version: u64) -> Result<bool, Error>;

    /// The fire that made a task of this instant of a schedule, or the task whose place it takes.
    async fn execution_of(
        &self,
        task_id: Uuid,
        schedule_id: Uuid,
        scheduled_at: DateTime<Utc>,
    ) -> Result<Option<Uuid>, Error>;

    /// The plugin's template of that name.
    fn template(&self, plugin: &str, slug: &str) -> Option<Template>;

    /// What the configuration says, by the name of its variable.
    fn setting(&self, variable: &str) -> Option<&str>;

    /// The zone of that IANA name.
    fn zone(&self, name: &str) -> Result<Arc<dyn ZoneRules>, Error>;

    /// What sends messages of a channel here, if anything does.
    fn transport(&self, channel: Channel) -> Option<&str>;

    /// Says that messages were posted and committed.
    fn messages_posted(&self);

    /// Sends a message now, and answers what the provider calls it.
    async fn deliver(&self, message: Outgoing) -> Result<String, NotifyError>;
}

/// The rules of a time zone.
pub trait ZoneRules: Send + Sync {
    /// What clocks there show at an instant.
    fn local(&self, at: DateTime<Utc>) -> NaiveDateTime;

    /// The instant at which clocks there show this: the first of two, and the first after a gap.
    fn instant(&self, local: NaiveDateTime) -> DateTime<Utc>;
}

/// Under which `Idempotency-Key` a call came.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Whose key it is.
    pub owner: String,
    /// The key.
    pub key: String,
    /// The same for calls that are the same.
    pub fingerprint: String,
}

/// What became of an answer that was to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// It is kept.
    Now,
    /// The same call was answered before, with this status and body.
    Before(u16, String),
    /// The key came before, with another call.
    Reused,
}

/// Whether an answer was kept in the transaction of what it tells.
pub fn is_kept(answer: &Answer) -> bool {
    answer.is_kept
}

/// A message that is to be sent, with everything said.
#[derive(Debug, Clone, PartialEq)]
pub struct Outgoing {
    /// Unique for good.
    pub dedupe_key: String,
    /// What sends it.
    pub transport: String,
    /// Whom it is for.
    pub recipient: String,
    /// What it says.
    pub content: Content,
}

/// What a message says, in one shape for every transport.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Content {
    /// In one line, what it is about.
    pub subject: String,
    /// The message in plain text.
    pub text: String,
    /// The same in HTML, if there is more to see.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub html: Option<String>,
    /// The template it was made from.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub template_slug: Option<String>,
    /// What the template's gaps were filled with, for those who fill in templates of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<serde_json::Value>,
}

/// Writes tasks and messages inside a transaction of somebody else's.
#[async_trait]
pub trait Writer: Send + Sync {
    /// Writes tasks, and answers their ids in order: of one that was deduplicated, the living one's.
    async fn write(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Uuid>, EnqueueError>;

    /// Cancels tasks, running or not.
    async fn cancel(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        ids: Vec<Uuid>,
    ) -> Result<(), EnqueueError>;

    /// Keeps what a call is answered.
    async fn keep(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        call: &Call,
        status: u16,
        body: &str,
    ) -> Result<Kept, EnqueueError>;

    /// Writes a message, and answers its id, or that of the first of its key.
    async fn post(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        message: Outgoing,
    ) -> Result<Uuid, NotifyError>;
}

/// The context of a plugin on this node.
pub fn context(plugin: &'static str, engine: Arc<dyn Engine>) -> Context {
    Context::new(plugin, engine)
}

/// The same context for one call of the plugin's code, and what tells that the call keeps everybody from writing.
pub fn watched(context: &Context) -> (Context, Overstay) {
    context.watched()
}

/// Tells when a transaction was open for longer than [`LONGEST_TRANSACTION`]. Whoever runs the plugin's code then drops
/// it, and with it the transaction, which rolls back.
#[derive(Clone, Default)]
pub struct Overstay(Option<Arc<Notify>>);

impl Overstay {
    pub(crate) fn new() -> Self {
        Self(Some(Arc::default()))
    }

    /// Returns once a transaction has overstayed; never where that hurts nobody.
    pub async fn happened(&self) {
        match &self.0 {
            Some(told) => told.notified().await,
            None => std::future::pending().await,
        }
    }

    /// Counts the time of a transaction, until the answer is dropped.
    pub(crate) fn begin(&self) -> Option<AbortOnDropHandle<()>> {
        let told = self.0.clone()?;
        Some(AbortOnDropHandle::new(tokio::spawn(async move {
            tokio::time::sleep(LONGEST_TRANSACTION).await;
            told.notify_one();
        })))
    }

    /// What is said of an attempt or a listener that overstayed.
    pub fn message() -> String {
        format!("a transaction was open for more than {LONGEST_TRANSACTION:?}, while nobody else could write")
    }
}
