//! The plugin of the demo: a shop. What an attempt does is said by its task's payload, so that whoever looks at a task in
//! the dashboard sees why it went as it did, and can make others.

use std::time::Duration;

use punctual_sdk::{Attempt, Handler, Outcome, Plugin};
use serde::Deserialize;
use serde_json::json;
use uuid::Uuid;

/// The shop's plugin.
pub(super) struct Sample;

impl Plugin for Sample {
    fn name(&self) -> &'static str {
        "demo"
    }

    fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
        vec![("shop.*", Box::new(perform)), ("reports.*", Box::new(perform))]
    }
}

/// What a payload says of its work; whatever else it says is not looked at.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct Work {
    /// At least, and at most.
    takes_ms: (u64, u64),
    /// One attempt in so many fails; none if it is not said.
    fails_one_in: Option<u64>,
    /// What it fails with.
    error: String,
    how: How,
}

/// How an attempt fails.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
enum How {
    /// The task's retry policy decides what follows.
    #[default]
    Retried,
    /// Trying again would not help.
    ForGood,
    /// The handler panics.
    Panics,
}

async fn perform(attempt: Attempt) -> Outcome {
    let work: Work = attempt.payload_as().unwrap_or_default();
    let chance = chance(attempt.task_id, attempt.number);
    let (least, most) = work.takes_ms;
    let takes = least + chance % most.saturating_sub(least).max(1);
    tokio::select! {
        () = tokio::time::sleep(Duration::from_millis(takes)) => {}
        () = attempt.cancelled.cancelled() => return Outcome::Cancelled,
    }
    if work.fails_one_in.is_none_or(|many| !(chance >> 32).is_multiple_of(many.max(1))) {
        return Outcome::completed_with(json!({ "tookMs": takes }));
    }
    match work.how {
        How::Retried => Outcome::failed(work.error),
        How::ForGood => Outcome::FailedForGood { error: work.error },
        How::Panics => panic!("{}", work.error),
    }
}

/// A number that is as good as random, and the same for the same attempt.
fn chance(task: Uuid, attempt: u32) -> u64 {
    // The low half of an id is random; the steps are those of SplitMix64.
    let mut mixed = (task.as_u128() as u64).wrapping_add(u64::from(attempt).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn outcome(payload: &str) -> Outcome {
        perform(Attempt::sample("shop.orders", payload)).await
    }

    #[tokio::test]
    async fn work_that_says_nothing_is_done_at_once() {
        for payload in ["{}", "null", r#"{"order": 17}"#] {
            assert!(matches!(outcome(payload).await, Outcome::Completed { .. }), "{payload}");
        }
    }

    #[tokio::test]
    async fn work_fails_as_its_payload_says() {
        let failed = outcome(r#"{"failsOneIn": 1, "error": "card declined"}"#).await;
        assert!(matches!(failed, Outcome::Failed { error } if error == "card declined"));
        let failed = outcome(r#"{"failsOneIn": 1, "error": "no such customer", "how": "forGood"}"#).await;
        assert!(matches!(failed, Outcome::FailedForGood { error } if error == "no such customer"));
    }

    #[tokio::test]
    async fn some_of_many_attempts_fail() {
        let failing = (1..=400).filter(|number| (chance(Uuid::nil(), *number) >> 32).is_multiple_of(4)).count();
        assert!((50..150).contains(&failing), "{failing}");
    }

    #[tokio::test]
    async fn work_that_is_told_to_stop_does() {
        let attempt = Attempt::sample("reports.render", r#"{"takesMs": [600000, 600000]}"#);
        attempt.cancelled.cancel();
        assert!(matches!(perform(attempt).await, Outcome::Cancelled));
    }
}
