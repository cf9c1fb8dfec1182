//! Patterns of topics as ranges of names, which an index can walk.
//!
//! Names are compared byte by byte, and no topic has a character below `-`. So what a blank or a `/` bounds is exactly
//! what a pattern means.

use punctual_domain::topic::TopicPattern;

/// The topics of a pattern: from `low` on, before `high`.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Range {
    pub(crate) low: String,
    pub(crate) high: String,
}

impl Range {
    pub(crate) fn of(pattern: &TopicPattern) -> Self {
        match pattern.as_str().strip_suffix(".*") {
            // The character after the dot.
            Some(prefix) => Self { low: format!("{prefix}."), high: format!("{prefix}/") },
            None => Self { low: pattern.as_str().to_owned(), high: format!("{} ", pattern.as_str()) },
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::topic::Topic;

    use super::*;

    #[test]
    fn a_range_holds_what_the_pattern_matches() {
        let topics = ["a", "a-", "a-b", "a.b", "a.b.c", "a.bc", "a0", "aa", "A.b", "b", "a_b", "a.b-c", "a.-"];
        for pattern in ["a", "a.*", "a.b", "a.b.*", "b.*", "a-b"] {
            let pattern: TopicPattern = pattern.parse().unwrap();
            let Range { low, high } = Range::of(&pattern);
            for topic in topics {
                let topic: Topic = topic.parse().unwrap();
                let is_inside = topic.as_str() >= low.as_str() && topic.as_str() < high.as_str();
                assert_eq!(is_inside, pattern.matches(&topic), "{} {topic}", pattern.as_str());
            }
        }
    }
}
