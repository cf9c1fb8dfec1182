use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::{Context, Database, Error, Notifier, StateCell};

/// One call of a handler for a task: everything the handler may know about it.
#[derive(Debug, Clone)]
pub struct Attempt {
    /// The task this attempt belongs to; the same on every attempt, so a good key for de-duplication.
    pub task_id: Uuid,
    /// The dotted name that led the task to this handler.
    pub topic: String,
    /// The task's payload, exactly as it was submitted.
    pub payload: Box<RawValue>,
    /// The task's metadata: for filtering, audit and tracing, never for access control.
    pub metadata: BTreeMap<String, String>,
    /// The IANA zone the task was scheduled in.
    pub timezone: String,
    /// Counts the calls for this task, from 1.
    pub number: u32,
    /// The fencing token of this attempt's lease: a larger one always belongs to a later claim.
    pub epoch: i64,
    /// When the task was due.
    pub run_at: DateTime<Utc>,
    /// The schedule whose fire made this task, if any; see [`execution_id`](Self::execution_id) too.
    pub schedule_id: Option<Uuid>,
    /// The instant of that fire.
    pub scheduled_at: Option<DateTime<Utc>>,
    /// When the attempt began, by the node's clock: the "now" of a handler that a test can move.
    pub started_at: DateTime<Utc>,
    /// When the attempt will be stopped as timed out.
    pub deadline: DateTime<Utc>,
    /// Cancelled when the attempt should stop: its task was cancelled, timed out, or lost its lease, or its node is
    /// stopping.
    pub cancelled: CancellationToken,
    /// The database, state cells, and the name of the handler's plugin.
    pub context: Context,
}

impl Attempt {
    /// An attempt for the test of a handler without an engine: a task's first, with this JSON as its payload, no hurry, and
    /// no database.
    ///
    /// All fields are public: set those that matter to the test.
    ///
    /// # Panics
    /// When `payload` is not JSON.
    pub fn sample(topic: &str, payload: &str) -> Self {
        Self {
            task_id: Uuid::new_v4(),
            topic: topic.to_owned(),
            payload: RawValue::from_string(payload.to_owned()).expect("the payload is JSON"),
            metadata: BTreeMap::new(),
            timezone: "UTC".to_owned(),
            number: 1,
            epoch: 1,
            run_at: DateTime::UNIX_EPOCH,
            schedule_id: None,
            scheduled_at: None,
            started_at: DateTime::UNIX_EPOCH,
            deadline: DateTime::<Utc>::MAX_UTC,
            cancelled: CancellationToken::new(),
            context: Context::default(),
        }
    }

    /// Reads the payload as a `T`.
    ///
    /// # Errors
    /// When the payload does not have the shape of a `T`; the error says where.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }

    /// The execution that this attempt is part of: the fire that made its task, under the id by which the executions of its
    /// schedule are listed. The same on every attempt, and on those of a task that was made by a retry. `None` for a task of
    /// no schedule, and once retention has removed the fire.
    ///
    /// It is looked up when it is asked for: attempts that do not need it need not wait for it.
    ///
    /// # Errors
    /// When the database is away.
    ///
    /// # Panics
    /// For a task of a schedule, where there is no database.
    pub async fn execution_id(&self) -> Result<Option<Uuid>, Error> {
        match (self.schedule_id, self.scheduled_at) {
            (Some(schedule_id), Some(scheduled_at)) => {
                self.context.engine().execution_of(self.task_id, schedule_id, scheduled_at).await
            }
            _ => Ok(None),
        }
    }

    /// The database: see [`Context::database`].
    pub fn database(&self) -> Database {
        self.context.database()
    }

    /// A state cell of the handler's plugin: see [`Context::state_cell`].
    pub fn state_cell<T>(&self, name: &str) -> StateCell<T> {
        self.context.state_cell(name)
    }

    /// What sends messages for the plugin: see [`Context::notifier`].
    pub fn notifier(&self) -> Notifier {
        self.context.notifier()
    }
}
