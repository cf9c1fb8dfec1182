//! Intervals: plain elapsed time, untouched by zones and clock changes.

use chrono::{DateTime, Datelike, TimeDelta, Utc};

/// The last year that RFC 3339 can write.
const LAST_YEAR: i32 = 9999;

/// Fires at its anchor and every so many milliseconds after it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Interval {
    every_ms: i64,
    anchor: DateTime<Utc>,
}

/// Why an interval was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum IntervalError {
    #[error("an interval of {every_ms} ms is too short, use at least {} ms", Interval::MIN_MS)]
    TooShort { every_ms: u64 },
    #[error("an interval of {every_ms} ms is too long, use at most {} ms, a hundred years", Interval::MAX_MS)]
    TooLong { every_ms: u64 },
}

impl Interval {
    pub const MIN_MS: u64 = 1_000;
    pub const MAX_MS: u64 = 36_525 * 86_400_000;

    pub fn new(every_ms: u64, anchor: DateTime<Utc>) -> Result<Self, IntervalError> {
        match every_ms {
            ..Self::MIN_MS => Err(IntervalError::TooShort { every_ms }),
            Self::MIN_MS..=Self::MAX_MS => Ok(Self { every_ms: every_ms as i64, anchor }),
            _ => Err(IntervalError::TooLong { every_ms }),
        }
    }

    pub fn every_ms(&self) -> u64 {
        self.every_ms as u64
    }

    pub fn anchor(&self) -> DateTime<Utc> {
        self.anchor
    }

    /// The first instant strictly after `after`; the anchor itself is one of them.
    pub fn next_after(&self, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if after < self.anchor {
            return Some(self.anchor);
        }
        let elapsed_ms = (after - self.anchor).num_milliseconds();
        let next_ms = (elapsed_ms / self.every_ms + 1) * self.every_ms;
        let next = self.anchor.checked_add_signed(TimeDelta::try_milliseconds(next_ms)?);
        next.filter(|next| next.year() <= LAST_YEAR)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    #[test]
    fn an_interval_fires_at_its_anchor_and_every_step_after() {
        let interval = Interval::new(90_000, at("2026-03-08T06:59:30Z")).unwrap();
        let mut after = at("2026-03-08T00:00:00Z");
        let expected = ["2026-03-08T06:59:30Z", "2026-03-08T07:01:00Z", "2026-03-08T07:02:30Z"];
        for expected in expected {
            after = interval.next_after(after).unwrap();
            assert_eq!(after, at(expected));
        }
    }

    #[test]
    fn an_answer_is_strictly_after_even_on_the_grid_or_a_fraction_past_it() {
        let interval = Interval::new(1_000, at("2026-01-01T00:00:00.250Z")).unwrap();
        let next = |text| interval.next_after(at(text)).unwrap();
        assert_eq!(next("2026-01-01T00:00:05.250Z"), at("2026-01-01T00:00:06.250Z"));
        assert_eq!(next("2026-01-01T00:00:05.249999Z"), at("2026-01-01T00:00:05.250Z"));
        assert_eq!(next("2026-01-01T00:00:05.250001Z"), at("2026-01-01T00:00:06.250Z"));
    }

    #[test]
    fn under_a_second_is_refused_and_says_what_to_use() {
        let refused = Interval::new(999, at("2026-01-01T00:00:00Z")).unwrap_err();
        assert_eq!(refused.to_string(), "an interval of 999 ms is too short, use at least 1000 ms");
        assert!(Interval::new(u64::MAX, at("2026-01-01T00:00:00Z")).is_err());
    }

    #[test]
    fn the_end_of_time_is_no_fire_and_no_panic() {
        let interval = Interval::new(Interval::MAX_MS, at("2026-01-01T00:00:00Z")).unwrap();
        assert_eq!(interval.next_after(DateTime::<Utc>::MAX_UTC), None);
        assert_eq!(interval.next_after(DateTime::<Utc>::MIN_UTC), Some(interval.anchor()));
        let last = Interval::new(86_400_000, at("9999-12-30T12:00:00Z")).unwrap();
        assert_eq!(last.next_after(last.anchor()), Some(at("9999-12-31T12:00:00Z")));
        assert_eq!(last.next_after(at("9999-12-31T12:00:00Z")), None, "no year after it can be written");
    }
}
