//! Looking into a store: did everything fire, why not, what would, and what would move.
//!
//! The same answers with a service and without one: the API's routes and the command line both come here. The rules are in
//! `punctual_domain`; here is what has to be read for them, page by page, and the shape of the answers.

mod moment;
pub(crate) mod prove;
pub(crate) mod simulate;
pub(crate) mod tz_diff;
pub(crate) mod why;

use std::path::PathBuf;
use std::sync::Arc;

use chrono::TimeDelta;
use punctual_domain::id::ScheduleId;
use punctual_domain::store::{Store, StoreError};
use punctual_domain::time::ZoneDatabase;

pub(crate) use moment::Moment;

/// Whoever looks, and what it looks with.
#[derive(Clone)]
pub(crate) struct Inspector {
    pub(crate) store: Arc<dyn Store>,
    /// The zone rules that schedules are computed with.
    pub(crate) zones: ZoneDatabase,
    /// How long an instant may stay undecided.
    pub(crate) misfire_threshold: TimeDelta,
    /// Where newer zone data may appear.
    pub(crate) tzdir: Option<PathBuf>,
    /// Is told how far a long look has come.
    pub(crate) progress: Option<Arc<Tell>>,
}

/// Tells how far something has come.
pub(crate) type Tell = dyn Fn(&str) + Send + Sync;

/// Why a look found no answer.
#[derive(Debug, thiserror::Error)]
pub(crate) enum InspectError {
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The question makes no sense; which field, and what to change.
    #[error("{field}: {message}")]
    Refused { field: &'static str, message: String },
    /// There is no such thing.
    #[error("there is no {0}")]
    NotFound(String),
}

impl InspectError {
    fn refused(field: &'static str, message: impl ToString) -> Self {
        Self::Refused { field, message: message.to_string() }
    }
}

impl Inspector {
    /// The schedule that a name or an id means, whether it is there or was deleted.
    async fn find_schedule(&self, name_or_id: &str) -> Result<ScheduleId, InspectError> {
        let unknown = || InspectError::NotFound(format!("schedule {:?}", shortened(name_or_id)));
        // No name has it, and PostgreSQL could not even be asked.
        if name_or_id.contains('\0') {
            return Err(unknown());
        }
        if let Some(schedule) = self.store.schedule_by_name(name_or_id).await? {
            return Ok(schedule.id);
        }
        if let Ok(id) = name_or_id.parse::<ScheduleId>()
            && self.store.schedule_was_ever(id).await?
        {
            return Ok(id);
        }
        self.store.schedule_once_named(name_or_id).await?.ok_or_else(unknown)
    }

    fn tell(&self, how_far: &str) {
        if let Some(progress) = &self.progress {
            progress(how_far);
        }
    }
}

fn shortened(text: &str) -> String {
    text.chars().take(100).collect()
}
