//! How many requests a key may send: so many per second, on this node.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use chrono::{DateTime, Utc};
use punctual_domain::id::KeyId;
use punctual_domain::rate::Tokens;

use super::problem::{Code, Problem};

/// How many keys are known before those are forgotten that send nothing.
const MOST_KEYS: usize = 10_000;

/// What is left of each key's rate.
pub(crate) struct Limits {
    per_second: f64,
    keys: Mutex<HashMap<KeyId, Tokens>>,
}

impl Limits {
    pub(crate) fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second), keys: Mutex::default() }
    }

    /// Counts a request of a key.
    ///
    /// # Errors
    /// When there were too many.
    pub(crate) fn count(&self, key: KeyId, now: DateTime<Utc>) -> Result<(), Problem> {
        let mut keys = self.keys.lock().unwrap_or_else(PoisonError::into_inner);
        if keys.len() >= MOST_KEYS {
            let full = Tokens::full(self.per_second, now);
            keys.retain(|_, tokens| tokens.refilled(self.per_second, now).left < full.left);
        }
        let known = keys.entry(key).or_insert_with(|| Tokens::full(self.per_second, now));
        let tokens = known.refilled(self.per_second, now);
        if tokens.whole() == 0 {
            *known = tokens;
            let detail = format!("the API key may send {} requests per second; slow down", self.per_second);
            return Err(Problem::new(Code::RateLimited, detail));
        }
        *known = tokens.without(1);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use chrono::TimeDelta;

    use super::*;

    #[test]
    fn a_key_may_send_so_many_and_others_do_not_suffer() {
        let limits = Limits::new(3);
        let now: DateTime<Utc> = "2026-11-16T12:00:00Z".parse().unwrap();
        let (one, two) = (KeyId::generate(), KeyId::generate());
        for _ in 0..3 {
            limits.count(one, now).unwrap();
        }
        assert_eq!(limits.count(one, now).unwrap_err().code, Code::RateLimited);
        limits.count(two, now).unwrap();
        assert!(limits.count(one, now + TimeDelta::milliseconds(300)).is_err());
        limits.count(one, now + TimeDelta::milliseconds(400)).unwrap();
    }
}
