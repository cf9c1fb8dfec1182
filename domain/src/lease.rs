//! A lease: the sole right to attempt a task, while it lasts.

use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::id::{Epoch, NodeId};

/// Who holds a running task, by which epoch, until when.
///
/// The database's clock decides when it ends. The holder stops acting earlier, by its own monotonic clock
/// ([`Lease::safe_for`]), so that it never acts on a lease that somebody else may have taken over.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// The node that claimed it.
    pub owner: NodeId,
    /// The fencing token.
    pub epoch: Epoch,
    /// When it ends; `None` for a task handed to a queue that keeps it without a lease.
    pub expires_at: Option<DateTime<Utc>>,
}

impl Lease {
    /// Whether the lease has run out.
    pub fn has_expired(&self, now: DateTime<Utc>) -> bool {
        self.expires_at.is_some_and(|expires_at| expires_at <= now)
    }

    /// How long after *sending* the claim or renewal its holder may act on a lease of the given length.
    ///
    /// Counting from the sending, not the answer, makes the network's delay shorten the holder's time and never
    /// lengthen it. A tenth, and at least 200 ms, is left to stop in.
    pub fn safe_for(length: Duration) -> Duration {
        let margin = (length / 10).max(Duration::from_millis(200));
        length.saturating_sub(margin)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_holder_stops_before_the_lease_ends() {
        for (length_ms, safe_ms) in [(30_000, 27_000), (1_000, 800), (5_000, 4_500), (100, 0)] {
            assert_eq!(Lease::safe_for(Duration::from_millis(length_ms)), Duration::from_millis(safe_ms));
        }
    }

    #[test]
    fn a_lease_ends_at_its_instant_and_one_without_an_instant_never() {
        let now = "2026-01-01T00:00:00Z".parse().unwrap();
        let lease = |expires_at| Lease { owner: NodeId::generate(), epoch: Epoch(1), expires_at };
        assert!(lease(Some(now)).has_expired(now));
        assert!(!lease(Some(now + Duration::from_micros(1))).has_expired(now));
        assert!(!lease(None).has_expired(now));
    }
}
