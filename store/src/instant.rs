//! The instants that both databases hold, and everybody can read: those of the years 1 to 9999.

use std::time::Duration;

use chrono::{DateTime, Utc};

/// The first microsecond of the year 1.
const FIRST_MICROS: i64 = -62_135_596_800_000_000;
/// The last microsecond of the year 9999.
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// The nearest instant that can be stored.
pub(crate) fn bounded(at: DateTime<Utc>) -> DateTime<Utc> {
    let micros = at.timestamp_micros();
    let nearest = micros.clamp(FIRST_MICROS, LAST_MICROS);
    if nearest == micros { at } else { DateTime::from_timestamp_micros(nearest).unwrap_or(at) }
}

/// The instant `wait` after `now`, in microseconds since 1970.
pub(crate) fn micros_after(now: DateTime<Utc>, wait: Duration) -> i64 {
    let wait = i64::try_from(wait.as_micros()).unwrap_or(i64::MAX);
    now.timestamp_micros().saturating_add(wait).clamp(FIRST_MICROS, LAST_MICROS)
}

/// The instant `age` before `now`, in microseconds since 1970.
pub(crate) fn micros_before(now: DateTime<Utc>, age: Duration) -> i64 {
    let age = i64::try_from(age.as_micros()).unwrap_or(i64::MAX);
    now.timestamp_micros().saturating_sub(age).clamp(FIRST_MICROS, LAST_MICROS)
}

/// The instant `age` before `now`.
pub(crate) fn before(now: DateTime<Utc>, age: Duration) -> DateTime<Utc> {
    DateTime::from_timestamp_micros(micros_before(now, age)).unwrap_or(now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn instants_end_with_the_year_9999_and_begin_with_the_year_1() {
        let at: DateTime<Utc> = "2026-11-16T12:00:00.123456789Z".parse().unwrap();
        assert_eq!(bounded(at), at);
        assert_eq!(bounded(DateTime::<Utc>::MAX_UTC).to_rfc3339(), "9999-12-31T23:59:59.999999+00:00");
        assert_eq!(bounded(DateTime::<Utc>::MIN_UTC).to_rfc3339(), "0001-01-01T00:00:00+00:00");
        assert_eq!(micros_after(at, Duration::MAX), LAST_MICROS);
        assert_eq!(micros_before(at, Duration::MAX), FIRST_MICROS);
        assert_eq!(before(at, Duration::from_secs(1)).to_rfc3339(), "2026-11-16T11:59:59.123456+00:00");
    }
}
