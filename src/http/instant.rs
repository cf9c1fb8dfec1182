//! Instants as the API reads and writes them.

use chrono::{DateTime, Datelike, SecondsFormat, Utc};
use serde::{Serialize, Serializer};

/// An instant in an answer: UTC, with `Z` and milliseconds.
pub(crate) struct Instant(pub(crate) DateTime<Utc>);

impl Serialize for Instant {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0.to_rfc3339_opts(SecondsFormat::Millis, true))
    }
}

/// Reads RFC 3339 with an offset, to the microsecond.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn read(text: &str) -> Result<DateTime<Utc>, String> {
    DateTime::parse_from_rfc3339(text)
        .ok()
        .filter(|_| text.as_bytes().get(10).is_some_and(|separator| matches!(separator, b'T' | b't')))
        .and_then(|instant| DateTime::from_timestamp_micros(instant.timestamp_micros()))
        // An offset can lead out of the years that can be written.
        .filter(|instant| (0..=9999).contains(&instant.year()))
        .ok_or_else(|| {
            "must be RFC 3339 with an offset, such as 2026-11-16T08:30:00-06:00 or 2026-11-16T14:30:00Z".into()
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_needs_its_offset() {
        assert_eq!(read("2026-11-16T08:30:00.5-06:00").unwrap(), read("2026-11-16T14:30:00.500Z").unwrap());
        for text in [
            "",
            "2026-11-16",
            "2026-11-16T08:30:00",
            "2026-11-16 08:30:00Z",
            "1700000000",
            "2026-02-30T00:00:00Z",
            "9999-12-31T23:59:59-01:00",
            "0000-01-01T00:00:00+01:00",
            "+10000-01-01T00:00:00Z",
        ] {
            assert!(read(text).is_err(), "{text}");
        }
    }

    #[test]
    fn answers_have_milliseconds() {
        let instant = Instant(read("2026-11-16T08:30:00.123456-06:00").unwrap());
        assert_eq!(serde_json::to_string(&instant).unwrap(), "\"2026-11-16T14:30:00.123Z\"");
    }
}
