//! How far a bulk change came, as it is kept under its `Idempotency-Key` until there is an answer.

use std::collections::BTreeMap;

use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, Depth, StoreError};
use serde::{Deserialize, Serialize};

use crate::text::{from_text, to_text};

/// The status of a kept answer that is none yet.
pub(crate) const UNDER_WAY: u16 = 0;

/// How far a bulk change came.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Progress {
    /// The last task it looked at.
    pub(crate) after: Option<TaskId>,
    /// How many it changed.
    pub(crate) count: u64,
}

impl Progress {
    /// What is kept in the place of an answer.
    pub(crate) fn to_answer(self) -> Result<Answer, StoreError> {
        Ok(Answer { status: UNDER_WAY, body: to_text(&self)? })
    }
}

/// What is kept under an `Idempotency-Key`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Kept {
    /// The call was answered.
    Answer(Answer),
    /// The call came so far.
    Progress(Progress),
}

impl Kept {
    /// Reads what is kept, if it belongs to a call with this fingerprint.
    pub(crate) fn read(answer: Answer, kept: &str, fingerprint: &str) -> Result<Self, StoreError> {
        match answer {
            _ if kept != fingerprint => Err(StoreError::IdempotencyKeyReused),
            Answer { status: UNDER_WAY, body } => from_text("the progress of a bulk change", &body).map(Self::Progress),
            answer => Ok(Self::Answer(answer)),
        }
    }

    /// The answer, if there is one.
    pub(crate) fn answer(self) -> Option<Answer> {
        match self {
            Self::Answer(answer) => Some(answer),
            Self::Progress(_) => None,
        }
    }
}

/// Tasks that were changed, by topic and whether fires made them.
#[derive(Debug, Default)]
pub(crate) struct ByTopic(BTreeMap<(String, bool), u64>);

impl ByTopic {
    /// Reads a JSON array of topic, origin and number.
    pub(crate) fn from_text(text: &str) -> Result<Self, StoreError> {
        let found: Vec<(String, bool, u64)> = from_text("how many tasks failed", text)?;
        Ok(Self(found.into_iter().map(|(topic, of_schedules, tasks)| ((topic, of_schedules), tasks)).collect()))
    }

    pub(crate) fn add(&mut self, topic: String, of_schedules: bool, tasks: u64) {
        *self.0.entry((topic, of_schedules)).or_default() += tasks;
    }

    pub(crate) fn merge(&mut self, other: Self) {
        other.0.into_iter().for_each(|((topic, of_schedules), tasks)| self.add(topic, of_schedules, tasks));
    }
}

impl From<ByTopic> for Vec<Depth> {
    fn from(by_topic: ByTopic) -> Self {
        let depth = |((topic, of_schedules), tasks)| Depth { topic, of_schedules, tasks };
        by_topic.0.into_iter().map(depth).collect()
    }
}
