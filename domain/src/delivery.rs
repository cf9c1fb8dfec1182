//! Delivery: what messages are sent through, and what follows when one could not be sent.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;

use crate::outbox::{Message, Sending};
use crate::retry::{Backoff, Growth, RetryPolicy};

/// How often sending is tried, over about half a day, before a message waits for somebody.
pub const RETRIES: RetryPolicy = RetryPolicy {
    attempts: 20,
    backoff: Backoff { growth: Growth::Exponential, delay: 10_000, max_delay: 3_600_000, jitter: 0.2 },
};

/// The longest wait that a provider may ask for.
const LONGEST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);
/// How much is kept of what went wrong, in bytes.
const MAX_ERROR_BYTES: usize = 4 * 1024;

/// Sends messages in one way, such as SMTP.
#[async_trait]
pub trait Transport: Send + Sync {
    /// Sends a message, and answers what the provider calls it.
    ///
    /// After a crash a message can come a second time that was sent the first: whatever the provider or the recipient
    /// tells repeats by must follow from its `dedupe_key`.
    async fn send(&self, message: &Message) -> Result<String, DeliveryError>;

    /// How many messages it sends side by side.
    fn concurrency(&self) -> u32 {
        8
    }
}

/// Why a message could not be sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum DeliveryError {
    /// It may work another time.
    #[error("{error}")]
    Later {
        /// What went wrong.
        error: String,
        /// When to try again, if the provider says so.
        after: Option<Duration>,
    },
    /// It would not work another time either.
    #[error("{error}")]
    Never {
        /// What went wrong.
        error: String,
    },
}

impl DeliveryError {
    /// It may work another time.
    pub fn later(error: impl fmt::Display) -> Self {
        Self::Later { error: error.to_string(), after: None }
    }

    /// It would not work another time either.
    pub fn never(error: impl fmt::Display) -> Self {
        Self::Never { error: error.to_string() }
    }
}

/// What becomes of a message after its attempt of that number; `chance`, from 0 up to 1, picks the place inside the jitter.
pub fn after_attempt(sent: Result<String, DeliveryError>, attempt: u32, chance: f64) -> Sending {
    let planned = RETRIES.delay_after(attempt, chance);
    match sent {
        Ok(provider_id) => Sending::Sent { provider_id: storable(&provider_id) },
        Err(DeliveryError::Never { error }) => Sending::Failed { error: storable(&error) },
        Err(DeliveryError::Later { error, after }) => match planned {
            Some(planned) => {
                let after = after.map_or(planned, |asked| asked.min(LONGEST_WAIT));
                Sending::Retried { error: storable(&error), after }
            }
            None => Sending::Failed { error: storable(&format!("given up after {attempt} attempts: {error}")) },
        },
    }
}

/// What becomes of a message whose sender waits for the answer, and decides by itself what follows.
pub fn after_the_only_attempt(sent: &Result<String, DeliveryError>) -> Sending {
    match sent {
        Ok(provider_id) => Sending::Sent { provider_id: storable(provider_id) },
        Err(error) => Sending::Failed { error: storable(&error.to_string()) },
    }
}

/// What both databases can hold of a text that somebody else wrote.
fn storable(text: &str) -> String {
    let mut kept = text.replace('\0', "\u{fffd}");
    kept.truncate(kept.floor_char_boundary(MAX_ERROR_BYTES));
    kept
}

/// The transports of a node, by name.
#[derive(Clone)]
pub struct Transports {
    by_name: BTreeMap<&'static str, Arc<dyn Transport>>,
    usual: &'static str,
}

impl Transports {
    /// None yet; messages that do not say how they go are for the one called `usual`.
    pub fn new(usual: &'static str) -> Self {
        Self { by_name: BTreeMap::new(), usual }
    }

    /// With one more.
    pub fn with(mut self, name: &'static str, transport: Arc<dyn Transport>) -> Self {
        self.by_name.insert(name, transport);
        self
    }

    /// The one of that name.
    pub fn named(&self, name: &str) -> Option<&Arc<dyn Transport>> {
        self.by_name.get(name)
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Arc<dyn Transport>)> {
        self.by_name.iter().map(|(name, transport)| (*name, transport))
    }

    /// The name of the one for messages that do not say how they go.
    pub fn usual(&self) -> &'static str {
        self.usual
    }
}

impl Default for Transports {
    fn default() -> Self {
        Self::new("log")
    }
}

impl fmt::Debug for Transports {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.by_name.keys()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn later(after: Option<u64>) -> Result<String, DeliveryError> {
        Err(DeliveryError::Later { error: "busy".into(), after: after.map(Duration::from_secs) })
    }

    fn retried(seconds: u64) -> Sending {
        Sending::Retried { error: "busy".into(), after: Duration::from_secs(seconds) }
    }

    #[test]
    fn what_follows_an_attempt_is_in_the_table() {
        let failed = |error: &str| Sending::Failed { error: error.into() };
        for (sent, attempt, expected) in [
            (Ok("id".to_owned()), 1, Sending::Sent { provider_id: "id".into() }),
            (Ok("id".to_owned()), 99, Sending::Sent { provider_id: "id".into() }),
            (later(None), 1, retried(10)),
            (later(None), 2, retried(20)),
            (later(None), 9, retried(2_560)),
            (later(None), 19, retried(3_600)),
            (later(None), 20, failed("given up after 20 attempts: busy")),
            (later(Some(7)), 1, retried(7)),
            (later(Some(0)), 5, retried(0)),
            (later(Some(1_000_000)), 1, retried(86_400)),
            (later(Some(7)), 20, failed("given up after 20 attempts: busy")),
            (Err(DeliveryError::never("no such address")), 1, failed("no such address")),
        ] {
            assert_eq!(after_attempt(sent.clone(), attempt, 0.5), expected, "{sent:?} {attempt}");
        }
    }

    #[test]
    fn the_only_attempt_ends_it_either_way() {
        assert_eq!(after_the_only_attempt(&Ok("id".into())), Sending::Sent { provider_id: "id".into() });
        assert_eq!(after_the_only_attempt(&later(Some(1))), Sending::Failed { error: "busy".into() });
    }

    #[test]
    fn what_is_kept_of_an_error_can_be_stored() {
        let never = |error: String| after_attempt(Err(DeliveryError::Never { error }), 1, 0.5);
        assert_eq!(never("a\0b".into()), Sending::Failed { error: "a\u{fffd}b".into() });
        let Sending::Failed { error } = never("é".repeat(MAX_ERROR_BYTES)) else { panic!("not failed") };
        assert_eq!(error.len(), MAX_ERROR_BYTES);
    }
}
