//! What both databases keep as JSON text, written and read back.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::retry::RetryPolicy;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::StoreError;
use punctual_domain::time::ZoneVersion;
use punctual_domain::topic::{Topic, TopicDefinition};
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The metadata keys that have a column of their own.
pub(crate) const OWNER_ID: &str = "ownerId";
pub(crate) const TENANT_ID: &str = "tenantId";
pub(crate) const CORRELATION_ID: &str = "correlationId";

/// How long a node is kept that was not heard of.
pub(crate) const KEEP_NODES: Duration = Duration::from_secs(60 * 60);

/// Writes a value that always has a JSON form.
pub(crate) fn to_text(value: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(value).map_err(|error| StoreError::Broken(format!("cannot be written as JSON: {error}")))
}

/// Reads a value back.
pub(crate) fn from_text<T: DeserializeOwned>(what: &str, text: &str) -> Result<T, StoreError> {
    serde_json::from_str(text).map_err(|error| StoreError::Broken(format!("{what} cannot be read: {error}")))
}

/// What can be told of a schedule whose definition cannot be read.
pub(crate) struct Unreadable {
    pub(crate) version: u64,
    pub(crate) last_fired_at: Option<DateTime<Utc>>,
    pub(crate) fired_through: Option<DateTime<Utc>>,
    pub(crate) fires_made: u64,
}

impl Unreadable {
    /// What its history says from now on: what it said last, and paused. `None` if that cannot be read either.
    pub(crate) fn paused(self, said_last: Option<&str>, note: String, now: DateTime<Utc>) -> Option<Schedule> {
        let Self { version, last_fired_at, fired_through, fires_made } = self;
        let last: Schedule = from_text("a former schedule", said_last?).ok()?;
        let updated_at = now;
        let paused = last.paused(Some(note), None);
        Some(Schedule { version, updated_at, last_fired_at, fired_through, fires_made, ..paused })
    }
}

/// Metadata as its column holds it: null for none.
pub(crate) fn metadata_to_text(metadata: &BTreeMap<String, String>) -> Result<Option<String>, StoreError> {
    if metadata.is_empty() { Ok(None) } else { to_text(metadata).map(Some) }
}

/// Metadata from its column.
pub(crate) fn metadata_from_text(text: Option<&str>) -> Result<BTreeMap<String, String>, StoreError> {
    text.map_or_else(|| Ok(BTreeMap::new()), |text| from_text("metadata", text))
}

/// A retry policy as its column holds it: null for the default one.
pub(crate) fn retry_to_text(retry: &RetryPolicy) -> Result<Option<String>, StoreError> {
    if *retry == RetryPolicy::default() { Ok(None) } else { to_text(retry).map(Some) }
}

/// A retry policy from its column.
pub(crate) fn retry_from_text(text: Option<&str>) -> Result<RetryPolicy, StoreError> {
    text.map_or_else(|| Ok(RetryPolicy::default()), |text| from_text("retry", text))
}

/// Whether a release of zone data is newer than another; a name that is none never is.
pub(crate) fn is_newer_tz_version(version: &str, than: &str) -> bool {
    match (version.parse::<ZoneVersion>(), than.parse::<ZoneVersion>()) {
        (Ok(version), Ok(than)) => version > than,
        (parsed, Err(_)) => parsed.is_ok(),
        (Err(_), _) => false,
    }
}

/// How long ended tasks of which topics are kept, where that differs from the rest.
pub(crate) struct Retention {
    /// Each a time to keep and the topics it is for.
    pub(crate) special: Vec<(Duration, Vec<String>)>,
}

impl Retention {
    /// Sorts `topics` by the definition that applies to each.
    pub(crate) fn new(keep: Duration, definitions: &[TopicDefinition], topics: impl Iterator<Item = Topic>) -> Self {
        let mut special: BTreeMap<Duration, Vec<String>> = BTreeMap::new();
        for topic in topics {
            let days = TopicDefinition::for_topic(definitions, &topic).and_then(|found| found.retention_days);
            if let Some(days) = days {
                let own = Duration::from_secs(u64::from(days) * 24 * 60 * 60);
                if own != keep {
                    special.entry(own).or_default().push(topic.to_string());
                }
            }
        }
        Self { special: special.into_iter().collect() }
    }
}
