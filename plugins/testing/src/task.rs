use chrono::{DateTime, Utc};
use punctual_domain::store::TaskWithAttempts;
use punctual_domain::task::{self, AttemptOutcome, TaskStatus};
use serde_json::Value;
use uuid::Uuid;

/// A task as a test looks at it.
#[derive(Debug, Clone)]
pub struct Task {
    /// Its id.
    pub id: Uuid,
    /// Its topic.
    pub topic: String,
    /// Where it stands; `Pending` if it was put off.
    pub status: TaskStatus,
    /// What it completed with; null if with nothing, or not yet.
    pub result: Value,
    /// What went wrong last; `panicked: …` after a panic.
    pub error: Option<String>,
    /// When it is, or last was, due.
    pub run_at: DateTime<Utc>,
    /// How its attempts ended, in order.
    pub outcomes: Vec<AttemptOutcome>,
    /// All that is stored about it.
    pub stored: task::Task,
}

impl Task {
    pub(crate) fn of(TaskWithAttempts { task, attempts }: TaskWithAttempts) -> Self {
        let outcomes = attempts.iter().filter_map(|attempt| attempt.outcome).collect();
        let error = attempts.into_iter().rev().find_map(|attempt| attempt.error);
        let known = Self::without_attempts(task);
        Self { outcomes, error: known.error.clone().or(error), ..known }
    }

    pub(crate) fn without_attempts(task: task::Task) -> Self {
        let result =
            task.result.as_ref().map(|result| serde_json::from_str(result.as_str()).expect("results are JSON"));
        Self {
            id: task.id.0,
            topic: task.topic.to_string(),
            status: task.status,
            result: result.unwrap_or_default(),
            error: task.error.clone(),
            run_at: task.run_at,
            outcomes: Vec::new(),
            stored: task,
        }
    }
}
