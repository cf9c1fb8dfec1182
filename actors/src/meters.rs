//! What this node counts and measures of its tasks, by topic.
//!
//! The label `topic` is the name of the definition that applies, so that callers cannot make labels: topics without a
//! definition count together. Handles are made once for a topic and kept; to record with one costs a few atomic
//! instructions, and nothing is allocated per task.

use std::sync::Arc;
use std::time::Duration;

use metrics::{Counter, Histogram, counter, histogram};
use punctual_domain::store::{Depth, Store, Ticked};
use punctual_domain::task::{Task, TaskStatus};
use punctual_domain::topic::{Topic, TopicDefinition};

/// The label of topics without a definition.
pub const OTHER_TOPICS: &str = "_other";

/// Counts what became of instants that were decided, and how late that was.
pub fn count_fires(ticked: &Ticked) {
    counter!("punctual_fires_total", "disposition" => "fired").increment(ticked.fired);
    counter!("punctual_fires_total", "disposition" => "skipped").increment(ticked.skipped);
    let lags = histogram!("punctual_schedule_lag_seconds");
    for lag in &ticked.lags {
        lags.record(lag.as_seconds_f64());
    }
}

/// Counts tasks that ended otherwise than by an attempt of this node. While the definitions are not known, they count among
/// the others.
pub async fn count_ended(store: &dyn Store, status: TaskStatus, ended: &[Depth]) {
    if ended.is_empty() {
        return;
    }
    let definitions = store.topics().await.unwrap_or_default();
    for Depth { topic, of_schedules, tasks } in ended {
        let origin = if *of_schedules { Origin::Schedule } else { Origin::Task };
        let label = topic_label(&definitions, &Topic::from_stored(topic.as_str()));
        TopicMeters::of(label).ended(status, origin, *tasks);
    }
}

/// The label of a topic: the name of its definition.
pub fn topic_label<'d>(definitions: &'d [TopicDefinition], topic: &Topic) -> &'d str {
    TopicDefinition::for_topic(definitions, topic).map_or(OTHER_TOPICS, |definition| definition.name.as_str())
}

/// What is recorded of the tasks of one label.
pub struct TopicMeters {
    label: Box<str>,
    ended: [[Counter; Origin::ALL.len()]; ENDS.len()],
    duration: Histogram,
    lag: Histogram,
    timeout_ratio: Histogram,
}

/// The ways in which a task ends.
const ENDS: [TaskStatus; 3] = [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled];

/// Who made a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A schedule's fire.
    Schedule,
    /// A caller.
    Task,
}

impl Origin {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Schedule, Self::Task];

    /// Who made this one.
    pub fn of(task: &Task) -> Self {
        if task.fire.is_some() { Self::Schedule } else { Self::Task }
    }

    /// The one word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Task => "task",
        }
    }
}

impl TopicMeters {
    /// The meters of a label; all of them show from now on, at zero.
    pub fn of(label: &str) -> Arc<Self> {
        let topic = || label.to_owned();
        let ended = ENDS.map(|status| {
            Origin::ALL.map(|origin| {
                counter!("punctual_tasks_total",
                    "topic" => topic(), "status" => status.as_str(), "origin" => origin.as_str())
            })
        });
        Arc::new(Self {
            label: label.into(),
            ended,
            duration: histogram!("punctual_task_duration_seconds", "topic" => topic()),
            lag: histogram!("punctual_task_lag_seconds", "topic" => topic()),
            timeout_ratio: histogram!("punctual_attempt_timeout_ratio", "topic" => topic()),
        })
    }

    /// Whose meters these are.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// An attempt of this task begins: how late it is, by the store's clock.
    pub fn began(&self, task: &Task) {
        if let Some(started_at) = task.started_at {
            self.lag.record((started_at - task.run_at).to_std().unwrap_or_default().as_secs_f64());
        }
    }

    /// An attempt ended by itself after that long, of the time it had.
    pub fn took(&self, elapsed: Duration, timeout_seconds: u32) {
        let elapsed = elapsed.as_secs_f64();
        self.duration.record(elapsed);
        self.timeout_ratio.record(elapsed / f64::from(timeout_seconds.max(1)));
    }

    /// So many tasks ended.
    pub fn ended(&self, status: TaskStatus, origin: Origin, tasks: u64) {
        if let Some(by_origin) = ENDS.iter().position(|end| *end == status).map(|end| &self.ended[end]) {
            by_origin[origin as usize].increment(tasks);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use punctual_domain::topic::Route;

    #[test]
    fn a_label_is_the_name_of_a_definition_or_that_of_all_others() {
        let definitions: Vec<_> =
            ["a.*", "a.b"].map(|name| TopicDefinition::new(name.parse().unwrap(), Route::Event)).into();
        for (topic, label) in [("a.b", "a.b"), ("a.x", "a.*"), ("a.y.z", "a.*"), ("a", "_other"), ("b", "_other")] {
            assert_eq!(topic_label(&definitions, &topic.parse().unwrap()), label, "{topic}");
        }
    }
}
