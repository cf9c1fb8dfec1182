//! When a failed attempt is followed by another: attempt number in, delay or "no more" out.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::invalid::Invalid;

/// How often a task is attempted, and how long it waits in between.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct RetryPolicy {
    /// How many attempts may end by themselves before the task fails for good; at least 1.
    pub attempts: u32,
    /// How long to wait after each.
    pub backoff: Backoff,
}

/// The wait between two attempts.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Backoff {
    /// Whether the wait grows.
    #[serde(rename = "type")]
    pub growth: Growth,
    /// The first wait, in milliseconds.
    pub delay: u64,
    /// The longest wait, in milliseconds.
    pub max_delay: u64,
    /// How much of the wait is left to chance, 0 to 1: 0.2 makes it 20 % shorter or longer at the most.
    pub jitter: f64,
}

/// Whether a wait grows from attempt to attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Growth {
    /// Always the same.
    Fixed,
    /// Twice as long each time.
    Exponential,
}

/// The longest wait that can be asked for: a year.
pub const MAX_DELAY_MS: u64 = 365 * 24 * 60 * 60 * 1000;
/// The most attempts that can be asked for.
pub const MAX_ATTEMPTS: u32 = 1000;

impl Default for Backoff {
    fn default() -> Self {
        Self { growth: Growth::Exponential, delay: 5_000, max_delay: 3_600_000, jitter: 0.2 }
    }
}

impl Default for RetryPolicy {
    /// One attempt: it fails and stays failed.
    fn default() -> Self {
        Self { attempts: 1, backoff: Backoff::default() }
    }
}

impl RetryPolicy {
    /// The wait before the next attempt after `used` ended by themselves, or `None` if that was the last.
    ///
    /// `chance`, from 0 up to 1, picks the place inside the jitter; 0.5 is its middle.
    pub fn delay_after(&self, used: u32, chance: f64) -> Option<Duration> {
        (used < self.attempts).then(|| self.backoff.delay_after(used, chance))
    }

    /// Notes what is out of bounds, under `field`.
    pub fn check(&self, field: &str, invalid: &mut Invalid) {
        if !(1..=MAX_ATTEMPTS).contains(&self.attempts) {
            invalid.add(format!("{field}.attempts"), format!("must be 1 to {MAX_ATTEMPTS}"));
        }
        self.backoff.check(&format!("{field}.backoff"), invalid);
    }
}

impl Backoff {
    fn delay_after(&self, used: u32, chance: f64) -> Duration {
        let factor = 1.0 + self.jitter * (2.0 * chance - 1.0);
        let jittered = (self.grown(used).min(self.max_delay) as f64 * factor).round() as u64;
        Duration::from_millis(jittered.min(self.max_delay))
    }

    /// The longest wait after `used` attempts of a queue that has no longest one, and whose chance makes waits shorter only.
    pub(crate) fn wait_in_queue(&self, used: u32) -> Duration {
        Duration::from_millis(self.grown(used))
    }

    fn grown(&self, used: u32) -> u64 {
        match self.growth {
            Growth::Fixed => self.delay,
            Growth::Exponential => {
                self.delay.saturating_mul(1u64.checked_shl(used.saturating_sub(1)).unwrap_or(u64::MAX))
            }
        }
    }

    /// Notes what is out of bounds, under `field`.
    pub fn check(&self, field: &str, invalid: &mut Invalid) {
        if self.delay > MAX_DELAY_MS {
            invalid.add(format!("{field}.delay"), format!("must be at most {MAX_DELAY_MS} ms (a year)"));
        }
        if self.max_delay > MAX_DELAY_MS {
            invalid.add(format!("{field}.maxDelay"), format!("must be at most {MAX_DELAY_MS} ms (a year)"));
        }
        if !(0.0..=1.0).contains(&self.jitter) {
            invalid.add(format!("{field}.jitter"), "must be 0 to 1");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn policy(growth: Growth, attempts: u32) -> RetryPolicy {
        RetryPolicy { attempts, backoff: Backoff { growth, delay: 1_000, max_delay: 10_000, jitter: 0.5 } }
    }

    #[test]
    fn delays_follow_the_table() {
        use Growth::{Exponential, Fixed};
        let cases = [
            // growth, attempts, used, chance, expected ms
            (Fixed, 3, 1, 0.5, Some(1_000)),
            (Fixed, 3, 2, 0.5, Some(1_000)),
            (Fixed, 3, 3, 0.5, None),
            (Fixed, 1, 1, 0.5, None),
            (Exponential, 9, 1, 0.5, Some(1_000)),
            (Exponential, 9, 2, 0.5, Some(2_000)),
            (Exponential, 9, 4, 0.5, Some(8_000)),
            (Exponential, 9, 5, 0.5, Some(10_000)),
            (Exponential, 900, 899, 0.5, Some(10_000)),
            (Exponential, 9, 1, 0.0, Some(500)),
            (Exponential, 9, 1, 1.0, Some(1_500)),
            (Exponential, 9, 8, 1.0, Some(10_000)),
        ];
        for (growth, attempts, used, chance, expected) in cases {
            assert_eq!(
                policy(growth, attempts).delay_after(used, chance),
                expected.map(Duration::from_millis),
                "{growth:?} {attempts} {used} {chance}"
            );
        }
    }

    #[test]
    fn the_default_is_one_attempt_and_a_back_off_from_five_seconds_to_an_hour() {
        let default = RetryPolicy::default();
        assert_eq!(default.delay_after(1, 0.5), None);
        assert_eq!(default.backoff.delay_after(1, 0.5), Duration::from_secs(5));
        assert_eq!(default.backoff.delay_after(30, 0.5), Duration::from_secs(3600));
    }

    #[test]
    fn bounds_are_named_by_field() {
        let mut invalid = Invalid::default();
        RetryPolicy {
            attempts: 0,
            backoff: Backoff { growth: Growth::Fixed, delay: u64::MAX, max_delay: 1, jitter: f64::NAN },
        }
        .check("retry", &mut invalid);
        let fields: Vec<_> = invalid.0.iter().map(|error| error.field.as_str()).collect();
        assert_eq!(fields, ["retry.attempts", "retry.backoff.delay", "retry.backoff.jitter"]);
    }
}
