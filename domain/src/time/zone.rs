//! A time zone: a name and the offsets its clocks have had and will have.

use std::fmt;
use std::sync::Arc;

use chrono::{DateTime, NaiveDateTime, TimeDelta, Utc};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::resolve::{NEIGHBOURHOOD, Resolution, resolve};
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
/// Instants are in seconds. A stretch is followed back no farther than [`NEIGHBOURHOOD`] from the
/// instant asked about: a clock change before that has no effect any more.
#[derive(Debug, Clone, Copy)]
pub(super) struct Span {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) offset: i32,
}

/// A change of a zone's clocks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClockChange {
    /// When.
    pub at: DateTime<Utc>,
    /// How many seconds the clocks were ahead of UTC before.
    pub before: i32,
    /// How many they are from then on.
    pub after: i32,
}

impl Zone {
    pub(super) fn new(name: &str, version: &str, rules: TimeZone) -> Self {
        Self(Arc::new(Inner { name: name.to_string(), version: version.to_string(), rules }))
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

    /// What the zone's clocks show at an instant.
    pub fn local(&self, at: DateTime<Utc>) -> NaiveDateTime {
        at.naive_utc() + TimeDelta::seconds(self.offset_seconds_at(at).into())
    }

    /// Says which instants a local time stands for; fractions of a second are dropped.
    pub fn resolve(&self, local: NaiveDateTime) -> Resolution {
        resolve(self, Wall::from(local))
    }

    /// The first change of its clocks after an instant.
    pub fn next_change(&self, after: DateTime<Utc>) -> Option<ClockChange> {
        let here = self.span_at(after.timestamp());
        let at = DateTime::from_timestamp(here.end, 0).filter(|_| here.end != i64::MAX)?;
        Some(ClockChange { at, before: here.offset, after: self.offset_seconds_at(at) })
    }

    /// The stretch that holds an instant.
    ///
    /// Walks forward through the changes only: where explicit changes end and a yearly rule takes
    /// over, jiff's walk backward and its reading of local times follow the rule too early.
    pub(super) fn span_at(&self, at: i64) -> Span {
        let start = timestamp(at - NEIGHBOURHOOD);
        let mut span =
            Span { start: start.as_second(), end: i64::MAX, offset: self.0.rules.to_offset(start).seconds() };
        for change in self.0.rules.following(start) {
            let (changed_at, offset) = (change.timestamp().as_second(), change.offset().seconds());
            // A change of name or of the DST flag alone ends no stretch.
            if offset == span.offset {
                continue;
            }
            if changed_at > at {
                span.end = changed_at;
                break;
            }
            span.start = changed_at;
            span.offset = offset;
        }
        span
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
    Timestamp::from_second(at.clamp(Timestamp::MIN.as_second(), Timestamp::MAX.as_second())).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use crate::time::ZoneDatabase;

    #[test]
    fn clocks_show_what_their_zone_says_of_the_instant() {
        for (zone, at, shown) in [
            ("UTC", "2026-11-16T14:30:00.5Z", "2026-11-16 14:30:00.500"),
            ("America/Edmonton", "2026-11-16T14:30:00Z", "2026-11-16 08:30:00"),
            ("America/New_York", "2026-11-01T05:30:00Z", "2026-11-01 01:30:00"),
            ("America/New_York", "2026-11-01T06:30:00Z", "2026-11-01 01:30:00"),
            ("Asia/Kolkata", "2026-12-31T18:30:00Z", "2027-01-01 00:00:00"),
        ] {
            let zone = ZoneDatabase::bundled().zone(zone).unwrap();
            assert_eq!(zone.local(at.parse().unwrap()).to_string(), shown, "{zone}");
        }
    }
}
