//! Rows become domain types here, and nowhere else.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::id::{Epoch, MessageId, NodeId, ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::lease::Lease;
use punctual_domain::outbox::{Message, MessageStatus};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Retry, StoreError};
use punctual_domain::task::{AttemptOutcome, AttemptRecord, FireOfTask, Task, TaskStatus};
use punctual_domain::topic::Topic;
use serde::{Serialize, Serializer};
use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Row, Sqlite, Type};
use uuid::Uuid;

use super::broken;
use crate::instant::bounded;
pub(super) use crate::instant::{micros_after, micros_before};
use crate::text::{from_text, metadata_from_text, retry_from_text};

/// An instant as its column holds it.
pub(super) fn micros(at: DateTime<Utc>) -> i64 {
    bounded(at).timestamp_micros()
}

/// An instant from its column.
pub(super) fn instant(micros: i64) -> Result<DateTime<Utc>, StoreError> {
    DateTime::from_timestamp_micros(micros).ok_or_else(|| StoreError::Broken(format!("{micros} is not an instant")))
}

/// An instant without what its column cannot hold.
pub(super) fn whole_micros(at: DateTime<Utc>) -> DateTime<Utc> {
    at - TimeDelta::nanoseconds(i64::from(at.timestamp_subsec_nanos() % 1000))
}

/// An id inside a JSON parameter; statements turn it back into bytes with `unhex`.
pub(super) struct Hex(pub(super) Uuid);

impl Serialize for Hex {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0.simple())
    }
}

/// Reads the columns of a row one after the other.
pub(super) struct Columns<'r> {
    row: &'r SqliteRow,
    next: usize,
}

impl<'r> Columns<'r> {
    pub(super) fn of(row: &'r SqliteRow) -> Self {
        Self { row, next: 0 }
    }

    /// The next column.
    pub(super) fn take<T: Decode<'r, Sqlite> + Type<Sqlite>>(&mut self) -> Result<T, StoreError> {
        let column = self.next;
        self.next += 1;
        self.row.try_get(column).map_err(broken)
    }

    /// The next column, an instant.
    pub(super) fn take_instant(&mut self) -> Result<DateTime<Utc>, StoreError> {
        instant(self.take()?)
    }

    /// The next column, an instant if there was one.
    pub(super) fn take_instant_if_any(&mut self) -> Result<Option<DateTime<Utc>>, StoreError> {
        self.take::<Option<i64>>()?.map(instant).transpose()
    }

    /// The next column, which counts something.
    pub(super) fn take_count<T: TryFrom<i64>>(&mut self) -> Result<T, StoreError> {
        let count: i64 = self.take()?;
        T::try_from(count).map_err(|_| StoreError::Broken(format!("{count} is not such a count")))
    }

    /// The next column, one of our own words.
    pub(super) fn take_word<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
        word(self.take()?, read)
    }

    /// The next column, one of our own words if there is one.
    pub(super) fn take_word_if_any<T>(&mut self, read: impl Fn(&str) -> Option<T>) -> Result<Option<T>, StoreError> {
        self.take::<Option<&str>>()?.map(|text| word(text, read)).transpose()
    }

    /// The next columns, those of a live or ended task.
    pub(super) fn take_task(&mut self) -> Result<Task, StoreError> {
        let id = TaskId(self.take()?);
        let topic = Topic::from_stored(self.take::<&str>()?);
        let status = self.take_word(TaskStatus::from_name)?;
        let run_at = self.take_instant()?;
        let timezone = self.take()?;
        let payload = Json::from_stored(self.take::<&str>()?);
        let metadata = metadata_from_text(self.take()?)?;
        let client_request_id = self.take()?;
        let dedupe_key = self.take()?;
        let serial_key = self.take()?;
        let priority = self.take()?;
        let timeout_seconds = self.take_count()?;
        let retry = retry_from_text(self.take()?)?;
        let attempt = self.take_count()?;
        let lost = self.take_count()?;
        let snoozes = self.take_count()?;
        let epoch = Epoch(self.take()?);
        let owner: Option<Uuid> = self.take()?;
        let expires_at = self.take_instant_if_any()?;
        let result = self.take::<Option<&str>>()?.map(Json::from_stored);
        let error = self.take()?;
        let schedule_id: Option<Uuid> = self.take()?;
        let scheduled_at = self.take_instant_if_any()?;
        let fire = schedule_id
            .zip(scheduled_at)
            .map(|(id, scheduled_at)| FireOfTask { schedule_id: ScheduleId(id), scheduled_at });
        Ok(Task {
            id,
            topic,
            status,
            run_at,
            timezone,
            payload,
            metadata,
            client_request_id,
            dedupe_key,
            serial_key,
            priority,
            timeout_seconds,
            retry,
            attempt,
            lost,
            snoozes,
            epoch,
            lease: owner.map(|owner| Lease { owner: NodeId(owner), epoch, expires_at }),
            result,
            error,
            fire,
            retry_of: self.take::<Option<Uuid>>()?.map(TaskId),
            rescheduled_from: self.take::<Option<Uuid>>()?.map(TaskId),
            created_at: self.take_instant()?,
            started_at: self.take_instant_if_any()?,
            completed_at: self.take_instant_if_any()?,
        })
    }
}

fn word<T>(text: &str, read: impl Fn(&str) -> Option<T>) -> Result<T, StoreError> {
    read(text).ok_or_else(|| StoreError::Broken(format!("{text:?} is not a word we know")))
}

/// A row of `live_tasks.sql` or `ended_tasks.sql`.
pub(super) fn task(row: &SqliteRow) -> Result<Task, StoreError> {
    Columns::of(row).take_task()
}

/// A row of `retries_of.sql`.
pub(super) fn retry(row: &SqliteRow) -> Result<Retry, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Retry {
        id: TaskId(columns.take()?),
        status: columns.take_word(TaskStatus::from_name)?,
        created_at: columns.take_instant()?,
    })
}

/// A row of `attempts.sql`.
pub(super) fn attempt(row: &SqliteRow) -> Result<AttemptRecord, StoreError> {
    let mut columns = Columns::of(row);
    Ok(AttemptRecord {
        number: columns.take_count()?,
        node_id: NodeId(columns.take()?),
        epoch: Epoch(columns.take()?),
        started_at: columns.take_instant()?,
        ended_at: columns.take_instant_if_any()?,
        outcome: columns.take_word_if_any(AttemptOutcome::from_name)?,
        error: columns.take()?,
    })
}

/// A row of `schedules.sql` or `due_schedules.sql`.
pub(super) fn schedule(row: &SqliteRow) -> Result<Schedule, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Schedule {
        id: ScheduleId(columns.take()?),
        definition: from_text("a schedule's definition", columns.take()?)?,
        client_request_id: columns.take()?,
        enabled: columns.take()?,
        pause_note: columns.take()?,
        paused_until: columns.take_instant_if_any()?,
        last_fired_at: columns.take_instant_if_any()?,
        next_fire_at: columns.take_instant_if_any()?,
        fired_through: columns.take_instant_if_any()?,
        tz_version: columns.take()?,
        fires_made: columns.take_count()?,
        created_at: columns.take_instant()?,
        updated_at: columns.take_instant()?,
        version: columns.take_count()?,
    })
}

/// A row of `messages.sql` or `take_messages.sql`.
pub(super) fn message(row: &SqliteRow) -> Result<Message, StoreError> {
    let mut columns = Columns::of(row);
    Ok(Message {
        id: MessageId(columns.take()?),
        dedupe_key: columns.take()?,
        transport: columns.take()?,
        recipient: columns.take()?,
        body: Json::from_stored(columns.take::<&str>()?),
        status: columns.take_word(MessageStatus::from_name)?,
        attempt: columns.take_count()?,
        epoch: Epoch(columns.take()?),
        next_attempt_at: columns.take_instant()?,
        provider_id: columns.take()?,
        error: columns.take()?,
        created_at: columns.take_instant()?,
        completed_at: columns.take_instant_if_any()?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_survive_their_columns() {
        let at: DateTime<Utc> = "2026-11-16T12:00:00.123456789Z".parse().unwrap();
        assert_eq!(instant(micros(at)).unwrap(), whole_micros(at));
    }
}
