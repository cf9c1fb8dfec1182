//! The other side of the SDK: what the engine that runs plugins provides. Plugins need nothing of this.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use sqlx::{PgConnection, SqliteConnection};
use tokio::sync::Notify;
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::{Context, Database, Either, EnqueueError, Error, NewTask};

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

    /// A state cell's value as JSON, with its version.
    async fn read_cell(&self, name: &str) -> Result<Option<(String, u64)>, Error>;

    /// Writes a state cell if it still has `version` (0: if it is not there); `false` if somebody else was first.
    async fn write_cell(&self, name: &str, value: String, version: u64) -> Result<bool, Error>;
}

/// Writes tasks inside a transaction of somebody else's.
#[async_trait]
pub trait TaskWriter: Send + Sync {
    /// Writes tasks, and answers their ids in order: of one that was deduplicated, the living one's.
    async fn write(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Uuid>, EnqueueError>;
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
