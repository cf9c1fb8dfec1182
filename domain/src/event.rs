//! Events: what happened to tasks and schedules, read back from the rows that prove it.

use chrono::{DateTime, Utc};

use crate::id::ScheduleId;
use crate::task::{Task, TaskStatus};

/// What happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EventKind {
    /// An attempt began.
    Arrived,
    /// The task ended well.
    Completed,
    /// The task ended badly.
    Failed,
    /// The task was cancelled.
    Cancelled,
}

impl EventKind {
    /// The event's name in every stream.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Arrived => "schedule.arrived",
            Self::Completed => "task.completed",
            Self::Failed => "task.failed",
            Self::Cancelled => "task.cancelled",
        }
    }

    /// The event with which a task of that status ended.
    pub fn of_end(status: TaskStatus) -> Option<Self> {
        match status {
            TaskStatus::Completed => Some(Self::Completed),
            TaskStatus::Failed => Some(Self::Failed),
            TaskStatus::Cancelled => Some(Self::Cancelled),
            TaskStatus::Pending | TaskStatus::Running => None,
        }
    }
}

/// One thing that happened to a task.
#[derive(Debug, Clone, PartialEq)]
pub struct Event {
    /// What happened.
    pub kind: EventKind,
    /// When it happened.
    pub at: DateTime<Utc>,
    /// The number of the attempt it is about.
    pub attempt: u32,
    /// The task, as it stands now.
    pub task: Task,
}

impl Event {
    /// The same for the same event, however often it is announced.
    pub fn id(&self) -> String {
        let kind = match self.kind {
            EventKind::Arrived => format!("a{}", self.attempt),
            _ => "end".to_owned(),
        };
        format!("{}-{}-{kind}", self.at.timestamp_micros(), self.task.id)
    }

    /// When the event with that id happened; `None` if no event has such an id.
    pub fn instant_of(id: &str) -> Option<DateTime<Utc>> {
        let (micros, rest) = id.split_once('-')?;
        let (subject, kind) = rest.split_at_checked(36)?;
        let attempt = kind.strip_prefix("-a").and_then(|number| number.parse::<u32>().ok());
        let is_kind = attempt.is_some() || ["-end", "-missed"].contains(&kind);
        subject.parse::<uuid::Uuid>().ok().filter(|_| is_kind)?;
        DateTime::from_timestamp_micros(micros.parse().ok()?)
    }
}

/// An instant of a schedule that passed without a fire, noted by whichever node saw it first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MissedFire {
    /// The schedule.
    pub schedule_id: ScheduleId,
    /// Its name then.
    pub name: String,
    /// Where its task would have gone.
    pub topic: String,
    /// The instant.
    pub scheduled_at: DateTime<Utc>,
    /// When that was noted.
    pub noted_at: DateTime<Utc>,
}

impl MissedFire {
    /// The event's name in every stream.
    pub const NAME: &'static str = "schedule.missed";

    /// The same for the same event, however often it is announced.
    pub fn id(&self) -> String {
        format!("{}-{}-missed", self.noted_at.timestamp_micros(), self.schedule_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::task::NewTask;

    #[test]
    fn an_id_says_when_its_event_happened() {
        let at: DateTime<Utc> = "2026-11-16T12:00:00.123456Z".parse().unwrap();
        let task = NewTask::new("mail".parse().unwrap()).into_task(at, at);
        for (kind, attempt) in [(EventKind::Arrived, 12), (EventKind::Completed, 1), (EventKind::Cancelled, 0)] {
            let event = Event { kind, at, attempt, task: task.clone() };
            assert_eq!(Event::instant_of(&event.id()), Some(at), "{}", event.id());
        }
        let id = task.id;
        for bad in [
            "",
            "1",
            "-",
            "x",
            &format!("{id}"),
            &format!("1-{id}"),
            &format!("1-{id}-b"),
            &format!("x-{id}-end"),
            &format!("1-{id}-a"),
            "1-ä-end",
            &format!("99999999999999999999-{id}-end"),
        ] {
            assert_eq!(Event::instant_of(bad), None, "{bad}");
        }
    }
}
