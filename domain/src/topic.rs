//! Topics, and the longest-match rule that leads a topic to its definition.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::retry::RetryPolicy;

/// The dotted name that leads a task to its route.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct Topic(Box<str>);

/// Why a text is not a topic.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TopicError {
    /// Nothing, or more than 200 characters.
    #[error("a topic has 1 to 200 characters, not {0}")]
    Length(usize),
    /// A part is empty or has a character outside the alphabet.
    #[error(
        "{0:?} is not a topic: use letters, digits, `_` and `-`, in parts joined by dots, such as `signup.reminder`"
    )]
    Malformed(String),
}

impl Topic {
    /// Takes over a name that was checked before it was stored.
    pub fn from_stored(name: impl Into<Box<str>>) -> Self {
        Self(name.into())
    }

    /// The name itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The names of all definitions that it could be led to: its own, and every prefix of it.
    pub fn patterns(&self) -> Vec<String> {
        let prefixes = self.0.match_indices('.').map(|(dot, _)| format!("{}.*", &self.0[..dot]));
        std::iter::once(self.to_string()).chain(prefixes).collect()
    }
}

impl FromStr for Topic {
    type Err = TopicError;

    fn from_str(text: &str) -> Result<Self, TopicError> {
        let length = text.chars().count();
        if !(1..=200).contains(&length) {
            return Err(TopicError::Length(length));
        }
        let is_part =
            |part: &str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-');
        if text.split('.').all(is_part) { Ok(Self(text.into())) } else { Err(TopicError::Malformed(text.into())) }
    }
}

impl fmt::Display for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Topic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The name of a definition: one topic, or with a trailing `.*` all that begin so.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(transparent)]
pub struct TopicPattern(Box<str>);

impl TopicPattern {
    /// Takes over a pattern that was checked before it was stored.
    pub fn from_stored(name: impl Into<Box<str>>) -> Self {
        Self(name.into())
    }

    /// The pattern itself.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether `topic` is meant.
    pub fn matches(&self, topic: &Topic) -> bool {
        match self.0.strip_suffix('*') {
            // The dot stays in the prefix: `operations.*` is not `operationsX`.
            Some(prefix) => topic.as_str().starts_with(prefix),
            None => topic.as_str() == &*self.0,
        }
    }

    /// Whether every topic that `other` means is meant.
    pub fn covers(&self, other: &Self) -> bool {
        match (self.0.strip_suffix('*'), other.0.strip_suffix('*')) {
            (Some(prefix), Some(inner)) => inner.starts_with(prefix),
            (Some(prefix), None) => other.0.starts_with(prefix),
            (None, Some(_)) => false,
            (None, None) => self == other,
        }
    }

    /// How closely a matching topic is meant: an exact name beats every prefix, a longer prefix a shorter one.
    pub fn closeness(&self) -> (bool, usize) {
        (!self.0.ends_with('*'), self.0.len())
    }
}

impl FromStr for TopicPattern {
    type Err = TopicError;

    fn from_str(text: &str) -> Result<Self, TopicError> {
        text.strip_suffix(".*").unwrap_or(text).parse::<Topic>()?;
        Ok(Self(text.into()))
    }
}

/// What serves a topic. Its `Debug` shows no secrets.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case", deny_unknown_fields)]
pub enum Route {
    /// A plugin's handler.
    Handler,
    /// A signed HTTP call.
    Webhook {
        /// Where to.
        url: String,
        /// What signs it; two during a rotation.
        secrets: Vec<String>,
    },
    /// Workers in any language that claim by the API.
    Pull,
    /// A BullMQ queue in Redis.
    Bullmq {
        /// Its name.
        queue: String,
        /// Its key prefix.
        #[serde(default = "bull")]
        prefix: String,
    },
    /// Nobody: a due task is announced and completed.
    Event,
}

impl fmt::Debug for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handler => f.write_str("Handler"),
            Self::Webhook { url, secrets } => {
                let hidden: Vec<_> = secrets.iter().map(|_| "***").collect();
                f.debug_struct("Webhook").field("url", url).field("secrets", &hidden).finish()
            }
            Self::Pull => f.write_str("Pull"),
            Self::Bullmq { queue, prefix } => {
                f.debug_struct("Bullmq").field("queue", queue).field("prefix", prefix).finish()
            }
            Self::Event => f.write_str("Event"),
        }
    }
}

fn bull() -> String {
    "bull".into()
}

/// What is stored about a topic or a group of them.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct TopicDefinition {
    /// Which topics are meant.
    #[serde(skip_deserializing, default = "TopicDefinition::nameless")]
    pub name: TopicPattern,
    /// What serves them.
    pub route: Route,
    /// How many attempts run side by side on one node.
    pub concurrency: u32,
    /// How many attempts start per second on one node; `None` is no bound.
    pub rate_per_second: Option<f64>,
    /// The retry policy of tasks that bring none.
    pub retry: Option<RetryPolicy>,
    /// The time limit of attempts of tasks that bring none.
    pub timeout_seconds: Option<u32>,
    /// Whether its tasks wait.
    pub paused: bool,
    /// How long ended tasks are kept, where it differs from the rest.
    pub retention_days: Option<u32>,
}

impl TopicDefinition {
    /// How many attempts run side by side where nobody said otherwise.
    pub const DEFAULT_CONCURRENCY: u32 = 50;

    /// A definition with nothing but a name and a route.
    pub fn new(name: TopicPattern, route: Route) -> Self {
        Self {
            name,
            route,
            concurrency: Self::DEFAULT_CONCURRENCY,
            rate_per_second: None,
            retry: None,
            timeout_seconds: None,
            paused: false,
            retention_days: None,
        }
    }

    /// The definition that applies to `topic`: the longest match wins.
    pub fn for_topic<'a>(definitions: &'a [Self], topic: &Topic) -> Option<&'a Self> {
        definitions.iter().filter(|d| d.name.matches(topic)).max_by_key(|d| d.name.closeness())
    }

    fn nameless() -> TopicPattern {
        TopicPattern("".into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_dotted_names() {
        for good in ["a", "signup.reminder.early", "A-1_b.2", &"x".repeat(200)] {
            assert_eq!(good.parse::<Topic>().unwrap().as_str(), good);
        }
        for bad in ["", ".", "a.", ".a", "a..b", "a b", "ä", "a.*", "a/b", "a\0", &"x".repeat(201)] {
            assert!(bad.parse::<Topic>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn the_longest_match_wins_and_an_exact_name_beats_a_prefix() {
        let definitions: Vec<_> =
            ["a.*", "a.b.*", "a.b.c", "z"].map(|name| TopicDefinition::new(name.parse().unwrap(), Route::Event)).into();
        for (topic, expected) in [
            ("a.x", Some("a.*")),
            ("a.b.x", Some("a.b.*")),
            ("a.b.c", Some("a.b.c")),
            ("a.b.c.d", Some("a.b.*")),
            ("z", Some("z")),
            ("a", None),
            ("ab", None),
            ("z.y", None),
        ] {
            let found = TopicDefinition::for_topic(&definitions, &topic.parse().unwrap());
            assert_eq!(found.map(|d| d.name.as_str()), expected, "{topic}");
        }
    }

    #[test]
    fn a_pattern_covers_what_it_matches_altogether() {
        for (pattern, other, covers) in [
            ("a", "a", true),
            ("a.*", "a.b", true),
            ("a.*", "a.*", true),
            ("a.*", "a.b.*", true),
            ("a.*", "a", false),
            ("a.b.*", "a.*", false),
            ("a.b", "a.*", false),
            ("a.*", "ab.*", false),
        ] {
            let (pattern, other): (TopicPattern, TopicPattern) = (pattern.parse().unwrap(), other.parse().unwrap());
            assert_eq!(pattern.covers(&other), covers, "{pattern:?} {other:?}");
        }
    }

    #[test]
    fn a_webhooks_secrets_are_not_printed() {
        let route = Route::Webhook { url: "https://example.com".into(), secrets: vec!["swordfish".into()] };
        let definition = TopicDefinition::new("mail".parse().unwrap(), route);
        let printed = format!("{definition:?} {definition:#?}");
        assert!(!printed.contains("swordfish") && printed.contains("https://example.com"), "{printed}");
    }

    #[test]
    fn a_pattern_is_a_topic_or_a_prefix_of_whole_parts() {
        assert!("*".parse::<TopicPattern>().is_err());
        assert!("a*".parse::<TopicPattern>().is_err());
        assert!("a.*.b".parse::<TopicPattern>().is_err());
        assert!("a.b.*".parse::<TopicPattern>().is_ok());
    }
}
