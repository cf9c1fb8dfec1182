//! Rates: how many attempts may begin now, where only so many may begin per second.
//!
//! A bucket of tokens. Each attempt takes one; time brings them back, up to what one second brings, and at least one.

use chrono::{DateTime, TimeDelta, Utc};

/// The tokens of a topic, as they were at an instant.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Tokens {
    /// How many there were, parts of one too.
    pub left: f64,
    /// When that was.
    pub at: DateTime<Utc>,
}

impl Tokens {
    /// A full bucket.
    pub fn full(per_second: f64, now: DateTime<Utc>) -> Self {
        Self { left: most(per_second), at: now }
    }

    /// The same tokens, and those that came back meanwhile. A clock that went backwards brings none.
    pub fn refilled(self, per_second: f64, now: DateTime<Utc>) -> Self {
        let passed = (now - self.at).max(TimeDelta::zero()).as_seconds_f64();
        Self { left: (self.left + per_second * passed).clamp(0.0, most(per_second)), at: self.at.max(now) }
    }

    /// How many attempts may begin.
    pub fn whole(self) -> u32 {
        // As large as a rate can be; the cast cuts what is not whole.
        self.left.max(0.0) as u32
    }

    /// What is left once so many began.
    pub fn without(self, begun: u32) -> Self {
        Self { left: self.left - f64::from(begun), ..self }
    }

    /// When the next attempt may begin, if none may now.
    pub fn next_at(self, per_second: f64) -> DateTime<Utc> {
        let missing = (1.0 - self.left).max(0.0) / per_second;
        // Rounded up: at that instant there is a whole one.
        let micros = (missing * 1e6).ceil().min(1e15) as i64 + 1;
        self.at.checked_add_signed(TimeDelta::microseconds(micros)).unwrap_or(DateTime::<Utc>::MAX_UTC)
    }
}

fn most(per_second: f64) -> f64 {
    per_second.max(1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> DateTime<Utc> {
        DateTime::from_timestamp_millis(1_800_000_000_000 + ms).unwrap()
    }

    #[test]
    fn a_second_brings_the_rate_and_no_more_is_saved_up() {
        for (rate, taken, passed_ms, may) in [
            (10.0, 10, 0, 0),
            (10.0, 10, 100, 1),
            (10.0, 10, 99, 0),
            (10.0, 10, 1_000, 10),
            (10.0, 10, 60_000, 10),
            (10.0, 4, 0, 6),
            (0.5, 1, 1_000, 0),
            (0.5, 1, 2_000, 1),
            (0.5, 1, 9_000, 1),
            (2.5, 2, 0, 0),
            (2.5, 2, 200, 1),
            (10.0, 10, -5_000, 0),
        ] {
            let tokens = Tokens::full(rate, at(0)).without(taken).refilled(rate, at(passed_ms));
            assert_eq!(tokens.whole(), may, "{taken} of {rate}/s, {passed_ms} ms later");
        }
    }

    #[test]
    fn when_the_next_may_begin_it_may() {
        for rate in [0.001, 0.3, 1.0, 7.0, 999.0] {
            let full = Tokens::full(rate, at(0));
            let empty = full.without(full.whole());
            let next_at = empty.next_at(rate);
            assert!(next_at > at(0) && empty.refilled(rate, next_at).whole() >= 1, "{rate}");
        }
    }
}
