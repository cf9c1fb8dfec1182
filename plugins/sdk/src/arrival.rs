use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, SecondsFormat, Utc};
use serde::de::DeserializeOwned;
use serde::ser::SerializeStruct;
use serde::{Serialize, Serializer};
use serde_json::value::RawValue;
use uuid::Uuid;

use crate::{Attempt, Context, Database, Notifier, StateCell};

/// The event `schedule.arrived`: an attempt begins, whatever serves its topic.
///
/// As JSON it has the names that listeners outside know: `scheduledJobId`, `userPayload` and so on.
#[derive(Debug, Clone)]
pub struct Arrival {
    /// The task whose attempt begins.
    pub task_id: Uuid,
    /// The schedule whose fire made the task, if any.
    pub schedule_id: Option<Uuid>,
    /// The task's topic.
    pub topic: String,
    /// The IANA zone the task was scheduled in.
    pub timezone: String,
    /// The task's payload, exactly as it was submitted; shared by all listeners.
    pub payload: Arc<RawValue>,
    /// The task's metadata.
    pub metadata: Arc<BTreeMap<String, String>>,
    /// The instant of the schedule's fire; when the task was due, if no schedule made it.
    pub scheduled_at: DateTime<Utc>,
    /// When the attempt began.
    pub fired_at: DateTime<Utc>,
    /// Counts the attempts of the task, from 1.
    pub attempt: u32,
    /// The database, state cells, and the name of the listener's plugin.
    pub context: Context,
}

impl Arrival {
    /// The event's name.
    pub const NAME: &'static str = "schedule.arrived";

    /// The arrival that an attempt begins with, for listeners of the plugin that `context` belongs to.
    pub fn of(attempt: &Attempt, context: Context) -> Self {
        Self {
            task_id: attempt.task_id,
            schedule_id: attempt.schedule_id,
            topic: attempt.topic.clone(),
            timezone: attempt.timezone.clone(),
            payload: Arc::from(attempt.payload.clone()),
            metadata: Arc::new(attempt.metadata.clone()),
            scheduled_at: attempt.scheduled_at.unwrap_or(attempt.run_at),
            fired_at: attempt.started_at,
            attempt: attempt.number,
            context,
        }
    }

    /// The event's name for those who care for one topic only: `schedule.<topic>.arrived`.
    pub fn alias(&self) -> String {
        format!("schedule.{}.arrived", self.topic)
    }

    /// Reads the payload as a `T`.
    ///
    /// # Errors
    /// When the payload does not have the shape of a `T`; the error says where.
    pub fn payload_as<T: DeserializeOwned>(&self) -> Result<T, serde_json::Error> {
        serde_json::from_str(self.payload.get())
    }

    /// The database: see [`Context::database`].
    pub fn database(&self) -> Database {
        self.context.database()
    }

    /// A state cell of the listener's plugin: see [`Context::state_cell`].
    pub fn state_cell<T>(&self, name: &str) -> StateCell<T> {
        self.context.state_cell(name)
    }

    /// What sends messages for the plugin: see [`Context::notifier`].
    pub fn notifier(&self) -> Notifier {
        self.context.notifier()
    }
}

impl Serialize for Arrival {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let instant = |at: DateTime<Utc>| at.to_rfc3339_opts(SecondsFormat::Millis, true);
        let mut event = serializer.serialize_struct("Arrival", 11)?;
        event.serialize_field("name", Self::NAME)?;
        event.serialize_field("alias", &self.alias())?;
        event.serialize_field("scheduledJobId", &self.task_id)?;
        event.serialize_field("scheduleId", &self.schedule_id)?;
        event.serialize_field("topic", &self.topic)?;
        event.serialize_field("timezone", &self.timezone)?;
        event.serialize_field("userPayload", &*self.payload)?;
        event.serialize_field("metadata", &*self.metadata)?;
        event.serialize_field("scheduledAt", &instant(self.scheduled_at))?;
        event.serialize_field("firedAt", &instant(self.fired_at))?;
        event.serialize_field("attempt", &self.attempt)?;
        event.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_json_it_has_the_names_that_listeners_outside_know() {
        let attempt = Attempt {
            task_id: Uuid::nil(),
            timezone: "America/Edmonton".into(),
            metadata: BTreeMap::from([("ownerId".into(), "o".into())]),
            started_at: "2026-11-16T14:30:00.0015Z".parse().unwrap(),
            ..Attempt::sample("operations.event.start", r#"{"n": 1.50}"#)
        };
        let arrival = Arrival::of(&attempt, Context::default());
        assert_eq!(
            serde_json::to_string(&arrival).unwrap(),
            concat!(
                r#"{"name":"schedule.arrived","alias":"schedule.operations.event.start.arrived","#,
                r#""scheduledJobId":"00000000-0000-0000-0000-000000000000","scheduleId":null,"#,
                r#""topic":"operations.event.start","timezone":"America/Edmonton","userPayload":{"n": 1.50},"#,
                r#""metadata":{"ownerId":"o"},"scheduledAt":"1970-01-01T00:00:00.000Z","#,
                r#""firedAt":"2026-11-16T14:30:00.001Z","attempt":1}"#
            )
        );
    }
}
