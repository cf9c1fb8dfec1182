//! News: what nodes tell each other in passing, so that nobody has to look often. Hints, all of it: what gets lost is
//! found by the next look.

use std::fmt;

use crate::id::TaskId;

/// What may have changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct News {
    /// Tasks were written, or may run that could not.
    pub tasks: bool,
    /// Schedules were written.
    pub schedules: bool,
    /// Definitions of topics were written.
    pub topics: bool,
    /// Another node may lead than did: the one that led resigned, or one came with newer zone data.
    pub leadership: bool,
    /// Messages were posted.
    pub messages: bool,
    /// These tasks were cancelled: whoever runs one stops it.
    pub cancelled: Vec<TaskId>,
}

impl News {
    /// The most cancelled tasks that fit into one announcement of text.
    pub const MOST_CANCELLED: usize = 150;

    /// Tasks were written.
    pub fn of_tasks() -> Self {
        Self { tasks: true, ..Self::default() }
    }

    /// Schedules were written.
    pub fn of_schedules() -> Self {
        Self { schedules: true, ..Self::default() }
    }

    /// Definitions of topics were written.
    pub fn of_topics() -> Self {
        Self { topics: true, ..Self::default() }
    }

    /// Another node may lead than did.
    pub fn of_leadership() -> Self {
        Self { leadership: true, ..Self::default() }
    }

    /// Messages were posted.
    pub fn of_messages() -> Self {
        Self { messages: true, ..Self::default() }
    }

    /// These tasks were cancelled: whoever runs one stops it.
    pub fn of_cancelled(cancelled: Vec<TaskId>) -> Self {
        Self { cancelled, ..Self::default() }
    }

    /// Anything may have happened while nobody listened.
    pub fn unheard() -> Self {
        Self { tasks: true, schedules: true, topics: true, leadership: true, messages: true, cancelled: Vec::new() }
    }

    /// Whether there is nothing to tell.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// These news and others as one.
    pub fn merge(&mut self, other: Self) {
        self.tasks |= other.tasks;
        self.schedules |= other.schedules;
        self.topics |= other.topics;
        self.leadership |= other.leadership;
        self.messages |= other.messages;
        self.cancelled.extend(other.cancelled);
    }

    /// The news that a text tells. Words of later releases are passed over; a text without a word is about tasks.
    pub fn from_text(text: &str) -> Self {
        if text.is_empty() {
            return Self::of_tasks();
        }
        let mut news = Self::default();
        for word in text.split(' ') {
            match word {
                "tasks" => news.tasks = true,
                "schedules" => news.schedules = true,
                "topics" => news.topics = true,
                "leadership" => news.leadership = true,
                "messages" => news.messages = true,
                _ => news.cancelled.extend(word.strip_prefix("cancelled:").and_then(|id| id.parse::<TaskId>().ok())),
            }
        }
        news
    }
}

impl fmt::Display for News {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let facts = [
            (self.tasks, "tasks"),
            (self.schedules, "schedules"),
            (self.topics, "topics"),
            (self.leadership, "leadership"),
            (self.messages, "messages"),
        ];
        let words = facts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word.to_owned());
        let cancelled = self.cancelled.iter().map(|id| format!("cancelled:{id}"));
        f.write_str(&words.chain(cancelled).collect::<Vec<_>>().join(" "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn news_survive_being_told() {
        let cancelled = vec![TaskId::generate(), TaskId::generate()];
        for news in [
            News::of_tasks(),
            News::of_schedules(),
            News::of_topics(),
            News::of_leadership(),
            News::of_messages(),
            News::of_cancelled(cancelled.clone()),
            News { cancelled, ..News::unheard() },
        ] {
            assert_eq!(News::from_text(&news.to_string()), news);
        }
    }

    #[test]
    fn a_text_without_a_word_is_about_tasks_and_unknown_words_say_nothing() {
        assert_eq!(News::from_text(""), News::of_tasks());
        assert_eq!(News::from_text("weather cancelled:nobody schedules"), News::of_schedules());
        assert!(News::from_text("weather").is_empty());
    }

    #[test]
    fn the_most_that_is_told_at_once_fits_into_a_notification() {
        let cancelled = (0..News::MOST_CANCELLED).map(|_| TaskId::generate()).collect();
        let text = News { cancelled, ..News::unheard() }.to_string();
        // PostgreSQL takes less than 8,000 bytes.
        assert!(text.len() < 8_000, "{} bytes", text.len());
    }
}
