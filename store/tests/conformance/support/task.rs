//! Tasks that state only what matters, and what becomes of them.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::store::Created;
use punctual_domain::task::{AttemptOutcome, Due, FireOfTask, NewTask, Settlement, Task};
use punctual_domain::topic::Topic;

/// A task to be written; states only what matters.
#[derive(Clone)]
pub(crate) struct TaskBuilder(NewTask);

/// A task of that topic, due now.
pub(crate) fn task(topic_name: &str) -> TaskBuilder {
    TaskBuilder(NewTask::new(topic(topic_name)))
}

impl From<TaskBuilder> for NewTask {
    fn from(builder: TaskBuilder) -> Self {
        builder.0
    }
}

impl TaskBuilder {
    pub(crate) fn build(self) -> NewTask {
        self.0
    }

    pub(crate) fn at(mut self, at: DateTime<Utc>) -> Self {
        self.0.due = Due::At(at);
        self
    }

    pub(crate) fn in_secs(mut self, seconds: u64) -> Self {
        self.0.due = Due::After(Duration::from_secs(seconds));
        self
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.0.priority = priority;
        self
    }

    pub(crate) fn payload(mut self, text: &str) -> Self {
        self.0.payload = Json::parse(text).unwrap();
        self
    }

    pub(crate) fn attempts(mut self, attempts: u32) -> Self {
        self.0.retry.attempts = attempts;
        self
    }

    pub(crate) fn client_request_id(mut self, id: &str) -> Self {
        self.0.client_request_id = Some(id.into());
        self
    }

    pub(crate) fn dedupe_key(mut self, key: &str) -> Self {
        self.0.dedupe_key = Some(key.into());
        self
    }

    pub(crate) fn serial_key(mut self, key: &str) -> Self {
        self.0.serial_key = Some(key.into());
        self
    }

    pub(crate) fn metadata(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.insert(key.into(), value.into());
        self
    }

    pub(crate) fn owner(self, owner: &str) -> Self {
        self.metadata("ownerId", owner)
    }

    pub(crate) fn of_schedule(mut self, schedule_id: ScheduleId, scheduled_at: DateTime<Utc>) -> Self {
        self.0.fire = Some(FireOfTask { schedule_id, scheduled_at });
        self
    }
}

/// A task as it must stand right after it was written.
pub(crate) fn written(new: NewTask, now: DateTime<Utc>) -> Task {
    let run_at = match new.due {
        Due::At(at) => at,
        Due::After(delay) => now + delay,
        Due::Now => now,
    };
    new.into_task(run_at, now)
}

/// The topic of that name.
pub(crate) fn topic(name: &str) -> Topic {
    name.parse().unwrap()
}

/// It ended well, with nothing to show.
pub(crate) fn completed() -> Settlement {
    Settlement::Completed { result: None }
}

/// It ended badly.
pub(crate) fn failed(error: &str) -> Settlement {
    Settlement::Failed { outcome: AttemptOutcome::Failed, error: error.into() }
}

/// It failed and waits so many seconds for the next attempt.
pub(crate) fn retried(seconds: u64) -> Settlement {
    let after = Duration::from_secs(seconds);
    Settlement::Retried { outcome: AttemptOutcome::Failed, error: "not yet".into(), after }
}

/// It asked to be called so many seconds later.
pub(crate) fn snoozed(seconds: u64) -> Settlement {
    Settlement::Snoozed { after: Duration::from_secs(seconds), error: None }
}

/// The task that was written.
pub(crate) fn fresh(created: Created) -> Task {
    match created {
        Created::Fresh(task) => task,
        Created::Deduplicated(task) => panic!("{} stood for it", task.id),
    }
}

/// The living task that stood for the new one.
pub(crate) fn deduplicated(created: Created) -> Task {
    match created {
        Created::Deduplicated(task) => task,
        Created::Fresh(task) => panic!("{} was written", task.id),
    }
}

/// The ids of tasks, in their order.
pub(crate) fn ids<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Vec<TaskId> {
    tasks.into_iter().map(|task| task.id).collect()
}

/// The ids, largest first: the order of lists.
pub(crate) fn newest_first<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Vec<TaskId> {
    let mut ids = ids(tasks);
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

/// A map of text to text.
pub(crate) fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}
