//! What rates allow a worker's claim, the same on both databases.

use std::collections::HashMap;

use chrono::{DateTime, Utc};
use punctual_domain::rate::Tokens;
use punctual_domain::store::PullRequest;
use punctual_domain::task::Task;
use punctual_domain::topic::Topic;

/// How many attempts may begin, by topic in the order of the request.
pub(crate) struct Allowed {
    /// At the most; the claim's own bound where there is no rate.
    pub(crate) slots: Vec<u32>,
    /// The tokens of topics that have a rate.
    tokens: Vec<Option<Tokens>>,
}

/// What `known` tokens allow now; a topic that is not known begins with all it can have.
pub(crate) fn allowed(request: &PullRequest, known: &HashMap<String, Tokens>, now: DateTime<Utc>) -> Allowed {
    let tokens: Vec<_> = request
        .topics
        .iter()
        .map(|want| {
            let rate = want.rate_per_second?;
            let before = known.get(want.topic.as_str()).copied();
            Some(before.map_or_else(|| Tokens::full(rate, now), |tokens| tokens.refilled(rate, now)))
        })
        .collect();
    let slots = tokens.iter().map(|tokens| tokens.map_or(request.max, |tokens| tokens.whole().min(request.max)));
    Allowed { slots: slots.collect(), tokens }
}

impl Allowed {
    /// Where no topic has a rate.
    pub(crate) fn without_rates(request: &PullRequest) -> Self {
        Self { slots: vec![request.max; request.topics.len()], tokens: vec![None; request.topics.len()] }
    }

    /// What is left of the tokens once these tasks were claimed, and when the first topic that has none left gets one.
    pub(crate) fn after(
        &self,
        request: &PullRequest,
        claimed: &[Task],
    ) -> (Vec<(Topic, Tokens)>, Option<DateTime<Utc>>) {
        let mut begun: HashMap<&Topic, u32> = HashMap::new();
        for task in claimed {
            *begun.entry(&task.topic).or_default() += 1;
        }
        let mut spent = Vec::new();
        let mut allowed_at: Option<DateTime<Utc>> = None;
        for (want, tokens) in request.topics.iter().zip(&self.tokens) {
            let (Some(rate), Some(tokens)) = (want.rate_per_second, tokens) else { continue };
            let count = begun.get(&want.topic).copied().unwrap_or(0);
            let left = tokens.without(count);
            if count > 0 {
                spent.push((want.topic.clone(), left));
            }
            if left.whole() == 0 {
                let next_at = left.next_at(rate);
                allowed_at = Some(allowed_at.map_or(next_at, |at| at.min(next_at)));
            }
        }
        (spent, allowed_at)
    }
}
