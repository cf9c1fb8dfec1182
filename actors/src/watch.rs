//! The watch over schedules: what should have fired and did not, and what fired more than once. Every node keeps it,
//! leader or not; the store sees to it that each finding is told by one.

use std::time::Duration;

use punctual_domain::store::{Store, StoreError};
use punctual_domain::topic::Topic;

use crate::meters::topic_label;

/// How far past an instant without a fire is missed. What its schedule makes of it then is another matter: the misfire
/// threshold may be a day, and somebody is to know of a fire that did not come long before.
pub(crate) const MISSED_AFTER: Duration = Duration::from_secs(30);
/// How many missed instants are noted at a time.
const MISSED: u32 = 1_000;
/// How many ended tasks of fires are looked through at a time.
const AUDITED: u32 = 1_000;

/// Notes instants that are missed.
pub(crate) async fn note_missed(store: &dyn Store) -> Result<(), StoreError> {
    let missed = store.note_missed(MISSED_AFTER, MISSED).await?;
    if missed.is_empty() {
        return Ok(());
    }
    let definitions = store.topics().await?;
    for fire in missed {
        let topic = topic_label(&definitions, &Topic::from_stored(fire.topic.as_str())).to_owned();
        metrics::counter!("punctual_fires_missed_total", "topic" => topic).increment(1);
        tracing::warn!(
            schedule_id = %fire.schedule_id,
            name = fire.name,
            scheduled_at = %fire.scheduled_at,
            "schedule did not fire in time"
        );
    }
    Ok(())
}

/// Looks through the tasks of fires that ended last for instants that made more than one task.
pub(crate) async fn audit(store: &dyn Store) -> Result<(), StoreError> {
    loop {
        let audit = store.audit_fires(AUDITED).await?;
        for (schedule_id, scheduled_at) in &audit.doubles {
            tracing::error!(%schedule_id, %scheduled_at, "an instant made more than one task");
        }
        metrics::counter!("punctual_fires_duplicate_total").increment(audit.doubles.len() as u64);
        if audit.tasks < u64::from(AUDITED) {
            return Ok(());
        }
    }
}
