//! Why a task has not run, or a schedule did not fire: from what the store knows, in words.
//!
//! Each question has a function of its own that answers every reason that holds, the one that counts most first. Nothing
//! is asked of the running actors: what they keep to themselves (a rate, the slots of a node) is named as a limit.

mod schedule;
mod task;

use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::id::NodeId;
use crate::topic::{Topic, TopicPattern};

pub use schedule::{ScheduleFacts, why_fire, why_schedule};
pub use task::{TaskFacts, why_task};

/// One reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reason {
    /// The same word for the same cause, for programs.
    pub code: Cause,
    /// For people: what it is, and what to do about it.
    pub message: String,
}

/// What can be the cause.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// The task has ended.
    Ended,
    /// The task is being attempted.
    Running,
    /// Its lease ran out, and nobody took over yet.
    LeaseExpired,
    /// Its instant has not come.
    NotDue,
    /// It waits for another attempt.
    RetryWait,
    /// Its topic is paused.
    TopicPaused,
    /// Every node that could run it is paused.
    NodePaused,
    /// No node is running at all.
    NoNode,
    /// No node has what its topic needs (a handler, or Redis), or nobody serves that at all.
    NoServer,
    /// It waits for a worker to claim it.
    WaitsForClaim,
    /// Another task of its serial key comes first.
    SerialKey,
    /// The topic's limit of attempts at once is used up.
    Limit,
    /// The topic's rate limit may hold it back.
    Rate,
    /// Others of its topic come first.
    Ahead,
    /// It lost an attempt: such tasks run one at a time.
    LostBefore,
    /// Nothing holds it back.
    Due,
    /// The schedule is paused.
    Paused,
    /// The schedule has no instant left.
    Done,
    /// The schedule was deleted.
    Deleted,
    /// Its definition cannot be understood.
    NotUnderstood,
    /// Nobody decides what is due.
    NoLeader,
    /// Its instant is past, and nobody decided it.
    Overdue,
    /// A fire was skipped: an earlier task had not ended.
    Overlap,
    /// A fire was skipped: a later missed one fired for it.
    Coalesced,
    /// A fire was skipped: missed, by policy.
    Misfire,
    /// A fire was skipped: missed for too long.
    Window,
    /// A fire was skipped: a calendar excludes its day.
    Calendar,
    /// It fired, and made a task.
    Fired,
    /// The task it made was removed by retention.
    Pruned,
}

/// A node as far as this matters.
#[derive(Debug, Clone, PartialEq)]
pub struct NodeFacts {
    /// The node.
    pub id: NodeId,
    /// The topics it has handlers for.
    pub handles: Vec<TopicPattern>,
    /// Whether it can hand tasks to queues of BullMQ.
    pub has_redis: bool,
    /// Whether it neither claims nor ticks.
    pub is_paused: bool,
}

impl NodeFacts {
    fn has_handler(&self, topic: &Topic) -> bool {
        self.handles.iter().any(|pattern| pattern.matches(topic))
    }
}

impl Reason {
    fn new(code: Cause, message: impl Into<String>) -> Self {
        Self { code, message: message.into() }
    }
}

/// An instant as sentences have it.
fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// An instant, and how far it is from now.
fn from_now(at: DateTime<Utc>, now: DateTime<Utc>) -> String {
    let away = at - now;
    let span = duration(away.abs());
    let instant = instant(at);
    if away >= TimeDelta::zero() { format!("{instant} (in {span})") } else { format!("{instant} ({span} ago)") }
}

/// A span of time in the two largest units that matter.
pub fn duration(span: TimeDelta) -> String {
    let seconds = span.num_seconds();
    match seconds {
        ..1 => format!("{} ms", span.num_milliseconds()),
        1..60 => format!("{seconds} s"),
        60..3600 => format!("{} min {} s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{} h {} min", seconds / 3600, seconds % 3600 / 60),
        _ => format!("{} d {} h", seconds / 86_400, seconds % 86_400 / 3600),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn spans_are_told_in_two_units() {
        for (ms, told) in
            [(5, "5 ms"), (1_000, "1 s"), (61_000, "1 min 1 s"), (3_661_000, "1 h 1 min"), (90_000_000, "1 d 1 h")]
        {
            assert_eq!(duration(TimeDelta::milliseconds(ms)), told);
        }
    }
}
