//! A time zone: a name and the offsets its clocks have had and will have.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::resolve::{Resolution, resolve};
use super::wall::Wall;

/// An IANA time zone with the rules of one release of the tz database.
#[derive(Clone)]
pub struct Zone(Arc<Inner>);

struct Inner {
    name: String,
    version: String,
    rules: TimeZone,
}

/// A stretch of instants `start..end` during which a zone's offset stays the same.
///
/// Instants are in seconds; the first and last stretch of a zone have no bound.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) offset: i32,
}

impl Zone {
    pub(super) fn new(name: &str, version: &str, rules: TimeZone) -> Self {
        Self(Arc::new(Inner {
            name: name.to_string(),
            version: version.to_string(),
            rules,
        }))
    }

    /// The name as it was given.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The release of the tz database that the rules come from, such as `2026e`.
    pub fn version(&self) -> &str {
        &self.0.version
    }

    /// How far the zone's clocks are ahead of UTC at an instant.
    pub fn offset_seconds_at(&self, at: DateTime<Utc>) -> i32 {
        self.0.rules.to_offset(timestamp(at.timestamp())).seconds()
    }

    /// Says which instants a local time stands for; fractions of a second are dropped.
    pub fn resolve(&self, local: NaiveDateTime) -> Resolution {
        resolve(self, Wall::from(local))
    }

    /// The stretch that holds an instant.
    pub(super) fn span_at(&self, at: i64) -> Span {
        let rules = &self.0.rules;
        let offset_at = |at: Timestamp| rules.to_offset(at).seconds();
        let here = timestamp(at);
        let offset = offset_at(here);
        // A change of name or of the DST flag alone ends no stretch.
        let end = rules
            .following(here)
            .find(|change| change.offset().seconds() != offset);
        let start = rules
            .preceding(timestamp(at + 1))
            .map(|change| change.timestamp().as_second())
            .find(|&start| offset_at(timestamp(start - 1)) != offset);
        Span {
            start: start.unwrap_or(i64::MIN),
            end: end.map_or(i64::MAX, |change| change.timestamp().as_second()),
            offset,
        }
    }
}

impl PartialEq for Zone {
    fn eq(&self, other: &Self) -> bool {
        self.name() == other.name() && self.version() == other.version()
    }
}

impl Eq for Zone {}

impl fmt::Display for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Debug for Zone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Zone({} {})", self.name(), self.version())
    }
}

/// The nearest instant that the zone rules can be asked about.
fn timestamp(at: i64) -> Timestamp {
    Timestamp::from_second(at.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second()))
        .unwrap_or_default()
}
