//! How far a bulk change came, as it is kept under its `Idempotency-Key` until there is an answer.

use punctual_domain::id::TaskId;
use punctual_domain::store::{Answer, StoreError};
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
