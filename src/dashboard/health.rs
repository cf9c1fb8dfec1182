//! How it all is, in words: the first sentences of the overview.

use chrono::TimeDelta;

use super::parts::{Tone, number, relative, span};

/// How many late schedules and topics are named.
const NAMED: usize = 3;
/// From when on a task that nobody has begun is late, as it is for the instants of schedules (the misfire threshold).
pub(crate) const OVERDUE: TimeDelta = TimeDelta::seconds(30);

/// What the sentences are about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// How many schedules are enabled.
    pub(crate) schedules: u64,
    /// Whether it is known which of them are late.
    pub(crate) is_known: bool,
    /// Those whose instant has passed without a fire, and by how much.
    pub(crate) late: Vec<(String, TimeDelta)>,
    /// Whether there may be more of those: only so many are looked at.
    pub(crate) may_more_be_late: bool,
    /// What comes next, a fire or a task, and in how long.
    pub(crate) next: Option<(String, TimeDelta)>,
    /// Whether schedules that fire all the time come before that.
    pub(crate) is_next_among_the_rare: bool,
    /// How many nodes share the database, and how many of them were not heard of.
    pub(crate) nodes: usize,
    pub(crate) silent: usize,
    /// Whether somebody decides what is due.
    pub(crate) has_leader: bool,
    /// Whether this node does no work.
    pub(crate) is_paused: bool,
    /// Whether Redis answers, if there is to be one.
    pub(crate) redis: Option<bool>,
    /// How many tasks are due.
    pub(crate) due: u64,
    /// How many tasks are due whose topic nobody paused, as [`Facts::overdue`] saw it; `None` while that is not known.
    pub(crate) waiting: Option<u64>,
    /// Topics whose tasks are overdue or held, the one with the oldest first; `None` while that is not known.
    pub(crate) overdue: Option<Vec<Overdue>>,
    /// How many tasks failed in the last hour.
    pub(crate) failed: u64,
}

/// A topic with tasks that should have begun some time ago.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Overdue {
    pub(crate) topic: String,
    /// How many of its tasks are due.
    pub(crate) due: u64,
    /// For how long the oldest of them is.
    pub(crate) by: TimeDelta,
    /// What holds them up.
    pub(crate) cause: Cause,
}

/// Why tasks are not begun.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// Nobody wants it so: they are late.
    Late,
    /// Workers claim the tasks of this topic, and none has any at the moment.
    Unclaimed,
    /// Somebody paused the topic: they are meant to wait, however long it has been.
    Paused,
}

/// One sentence, how serious it is, and where to read more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Sentence {
    pub(crate) tone: Tone,
    pub(crate) text: String,
    /// The topics whose tasks it is about, and what holds those up.
    pub(crate) about: Option<(Cause, Vec<String>)>,
}

/// What is to be said, the most important first; the first is the headline.
pub(crate) fn sentences(facts: &Facts) -> Vec<Sentence> {
    let mut said = Vec::new();
    let mut say = |tone, text: String| said.push(Sentence { tone, text, about: None });
    if !facts.late.is_empty() {
        say(Tone::Bad, late(facts));
    }
    said.extend(overdue(facts, Cause::Late));
    let is_on_time = said.is_empty();
    let mut say = |tone, text: String| said.push(Sentence { tone, text, about: None });
    if facts.is_paused {
        say(Tone::Late, "This node is paused: nothing fires and nothing runs here until it is resumed.".into());
    } else if !facts.has_leader && facts.schedules > 0 {
        say(Tone::Bad, "No node leads at the moment: schedules do not fire until one does.".into());
    }
    match (facts.silent, facts.nodes) {
        (0, _) => {}
        (1, 1) => say(Tone::Bad, "The only node is silent.".into()),
        (1, nodes) => say(Tone::Bad, format!("1 of {nodes} nodes is silent: it died, or cannot reach the database.")),
        (silent, nodes) => {
            say(Tone::Bad, format!("{silent} of {nodes} nodes are silent: they died, or cannot reach the database."));
        }
    }
    if facts.redis == Some(false) {
        say(Tone::Late, "Redis does not answer: wake-ups between nodes are slower, and nothing is lost.".into());
    }
    if !facts.is_known {
        say(Tone::Waiting, "Whether all schedules are on time is being looked at.".into());
    } else if facts.late.is_empty() && (is_on_time || facts.schedules > 0) {
        say(Tone::Good, on_time(facts, is_on_time));
    }
    if facts.failed > 0 {
        say(Tone::Late, format!("{} failed in the last hour.", tasks(facts.failed)));
    }
    said.extend(overdue(facts, Cause::Unclaimed));
    said.extend(overdue(facts, Cause::Paused));
    let waiting = match facts.waiting.unwrap_or(facts.due) {
        0 => None,
        1 => Some("1 task is due and waits.".into()),
        due => Some(format!("{} are due and wait.", tasks(due))),
    };
    said.extend(waiting.map(|text| Sentence { tone: Tone::Waiting, text, about: None }));
    said
}

fn tasks(count: u64) -> String {
    if count == 1 { "1 task".into() } else { format!("{} tasks", number(count)) }
}

/// What is said of overdue tasks of this cause, if there are any.
fn overdue(facts: &Facts, cause: Cause) -> Option<Sentence> {
    let found: Vec<_> = facts.overdue.iter().flatten().filter(|overdue| overdue.cause == cause).collect();
    let due = found.iter().map(|overdue| overdue.due).sum();
    let oldest = found.iter().map(|overdue| overdue.by).max()?;
    let topics: Vec<_> = found.iter().take(NAMED).map(|overdue| overdue.topic.clone()).collect();
    let rest = found.len() - topics.len();
    let of = match rest {
        0 => topics.join(", "),
        1 => format!("{} and 1 more topic", topics.join(", ")),
        rest => format!("{} and {rest} more topics", topics.join(", ")),
    };
    let (tone, text) = match (cause, due) {
        (Cause::Late, 1) => (Tone::Bad, format!("1 task is late by {}: {of}.", span(oldest))),
        (Cause::Late, due) => {
            (Tone::Bad, format!("{} wait to begin, the oldest late by {}: {of}.", tasks(due), span(oldest)))
        }
        (Cause::Unclaimed, 1) => {
            (Tone::Waiting, format!("1 task waits for a worker to claim it, for {}: {of}.", span(oldest)))
        }
        (Cause::Unclaimed, due) => {
            let tasks = tasks(due);
            (Tone::Waiting, format!("{tasks} wait for a worker to claim them, the oldest for {}: {of}.", span(oldest)))
        }
        (Cause::Paused, 1) => {
            (Tone::Waiting, format!("1 task waits because its topic is paused, for {}: {of}.", span(oldest)))
        }
        (Cause::Paused, due) => {
            let (tasks, whose) = (tasks(due), if found.len() == 1 { "their topic is" } else { "their topics are" });
            (Tone::Waiting, format!("{tasks} wait because {whose} paused, the oldest for {}: {of}.", span(oldest)))
        }
    };
    Some(Sentence { tone, text, about: Some((cause, topics)) })
}

fn late(facts: &Facts) -> String {
    let named: Vec<_> = facts.late.iter().take(NAMED).map(|(name, by)| format!("{name} by {}", span(*by))).collect();
    let rest = facts.late.len().saturating_sub(NAMED);
    let at_least = if facts.may_more_be_late { "at least " } else { "" };
    let more = if rest > 0 { format!(", and {at_least}{rest} more") } else { String::new() };
    let who = match (facts.late.len(), facts.schedules) {
        (1, 1) => "The only schedule is late".to_owned(),
        (1, all) => format!("1 of {} schedules is late", number(all)),
        (late, all) if facts.may_more_be_late && (late as u64) < all => {
            format!("At least {late} of {} schedules are late", number(all))
        }
        (late, all) => format!("{late} of {} schedules are late", number(all)),
    };
    format!("{who}: {}{more}.", named.join(", "))
}

/// `and_tasks`: nothing else was said of tasks that are late.
fn on_time(facts: &Facts, and_tasks: bool) -> String {
    let no_task = if and_tasks && facts.overdue.is_some() { ", and no task is late" } else { "" };
    let so_far = match facts.schedules {
        0 => format!("No schedule is enabled{no_task}; tasks run when they are due."),
        1 => format!("The only schedule is on time{no_task}."),
        schedules => format!("All {} schedules are on time{no_task}.", number(schedules)),
    };
    match &facts.next {
        Some((name, ahead)) => {
            let beside = if facts.is_next_among_the_rare { ", beside what fires all the time" } else { "" };
            format!("{so_far} Next{beside}: {name} {}.", relative(*ahead))
        }
        None => so_far,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn well() -> Facts {
        Facts {
            schedules: 42,
            is_known: true,
            next: Some(("nightly-report".into(), TimeDelta::minutes(4))),
            is_next_among_the_rare: false,
            nodes: 1,
            has_leader: true,
            overdue: Some(Vec::new()),
            waiting: Some(0),
            ..Facts::default()
        }
    }

    fn late(names: &[(&str, i64)]) -> Vec<(String, TimeDelta)> {
        names.iter().map(|(name, seconds)| ((*name).to_owned(), TimeDelta::seconds(*seconds))).collect()
    }

    fn overdue(topic: &str, due: u64, seconds: i64, cause: Cause) -> Overdue {
        Overdue { topic: topic.into(), due, by: TimeDelta::seconds(seconds), cause }
    }

    #[test]
    fn the_first_sentence_says_how_it_is() {
        let by = |change: &dyn Fn(&mut Facts)| {
            let mut facts = well();
            change(&mut facts);
            let Sentence { tone, text, .. } = sentences(&facts).remove(0);
            (tone, text)
        };
        for (change, tone, expected) in [
            (
                &(|_: &mut Facts| {}) as &dyn Fn(&mut Facts),
                Tone::Good,
                "All 42 schedules are on time, and no task is late. Next: nightly-report in 4 min.",
            ),
            (
                &|facts| facts.schedules = 1,
                Tone::Good,
                "The only schedule is on time, and no task is late. Next: nightly-report in 4 min.",
            ),
            (
                &|facts| facts.is_next_among_the_rare = true,
                Tone::Good,
                "All 42 schedules are on time, and no task is late. Next, beside what fires all the time: nightly-report in 4 min.",
            ),
            (&|facts| facts.next = None, Tone::Good, "All 42 schedules are on time, and no task is late."),
            (&|facts| facts.is_known = false, Tone::Waiting, "Whether all schedules are on time is being looked at."),
            (
                &|facts| (facts.schedules, facts.next) = (0, None),
                Tone::Good,
                "No schedule is enabled, and no task is late; tasks run when they are due.",
            ),
            (
                &|facts| {
                    (facts.schedules, facts.next) = (0, Some(("a task of mail".into(), TimeDelta::minutes(4))));
                },
                Tone::Good,
                "No schedule is enabled, and no task is late; tasks run when they are due. Next: a task of mail in 4 min.",
            ),
            (&|facts| facts.late = late(&[("a", 90)]), Tone::Bad, "1 of 42 schedules is late: a by 90 s."),
            (
                &|facts| (facts.schedules, facts.late) = (1, late(&[("a", 200)])),
                Tone::Bad,
                "The only schedule is late: a by 3 min.",
            ),
            (
                &|facts| facts.late = late(&[("a", 90), ("b", 60), ("c", 50), ("d", 40), ("e", 30)]),
                Tone::Bad,
                "5 of 42 schedules are late: a by 90 s, b by 60 s, c by 50 s, and 2 more.",
            ),
            (
                &|facts| {
                    (facts.late, facts.may_more_be_late) = (late(&[("a", 90), ("b", 60), ("c", 50), ("d", 40)]), true)
                },
                Tone::Bad,
                "At least 4 of 42 schedules are late: a by 90 s, b by 60 s, c by 50 s, and at least 1 more.",
            ),
            (
                &|facts| facts.is_paused = true,
                Tone::Late,
                "This node is paused: nothing fires and nothing runs here until it is resumed.",
            ),
            (
                &|facts| facts.has_leader = false,
                Tone::Bad,
                "No node leads at the moment: schedules do not fire until one does.",
            ),
            (
                &|facts| (facts.nodes, facts.silent) = (3, 1),
                Tone::Bad,
                "1 of 3 nodes is silent: it died, or cannot reach the database.",
            ),
            (
                &|facts| (facts.nodes, facts.silent) = (3, 2),
                Tone::Bad,
                "2 of 3 nodes are silent: they died, or cannot reach the database.",
            ),
            (
                &|facts| facts.redis = Some(false),
                Tone::Late,
                "Redis does not answer: wake-ups between nodes are slower, and nothing is lost.",
            ),
            (&|facts| facts.overdue = None, Tone::Good, "All 42 schedules are on time. Next: nightly-report in 4 min."),
            (
                &|facts| facts.overdue = Some(vec![overdue("mail", 1, 240, Cause::Late)]),
                Tone::Bad,
                "1 task is late by 4 min: mail.",
            ),
            (
                &|facts| {
                    facts.overdue = Some(["a", "b", "c", "d"].map(|name| overdue(name, 300, 90, Cause::Late)).into())
                },
                Tone::Bad,
                "1\u{202f}200 tasks wait to begin, the oldest late by 90 s: a, b, c and 1 more topic.",
            ),
            (
                &|facts| facts.overdue = Some(vec![overdue("mail", 1, 240, Cause::Unclaimed)]),
                Tone::Good,
                "All 42 schedules are on time, and no task is late. Next: nightly-report in 4 min.",
            ),
            (
                &|facts| facts.redis = Some(true),
                Tone::Good,
                "All 42 schedules are on time, and no task is late. Next: nightly-report in 4 min.",
            ),
        ] {
            assert_eq!(by(change), (tone, expected.to_owned()));
        }
    }

    #[test]
    fn without_schedules_late_tasks_are_not_followed_by_a_promise() {
        let late = Some(vec![overdue("mail", 1, 60, Cause::Late)]);
        let said = sentences(&Facts { schedules: 0, next: None, overdue: late, ..well() });
        assert_eq!(said.iter().map(|said| &*said.text).collect::<Vec<_>>(), ["1 task is late by 60 s: mail."]);
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        let facts = Facts {
            late: late(&[("a", 90)]),
            is_paused: true,
            silent: 1,
            nodes: 2,
            redis: Some(false),
            due: 1_204,
            waiting: Some(1_200),
            overdue: Some(vec![
                overdue("held", 3, 100, Cause::Paused),
                overdue("pulled", 3, 90, Cause::Unclaimed),
                overdue("mail", 2, 60, Cause::Late),
                overdue("held.too", 1, 5, Cause::Paused),
            ]),
            failed: 1,
            ..well()
        };
        let said = sentences(&facts);
        let parts = [
            "1 of 42 schedules is late",
            "2 tasks wait to begin, the oldest late by 60 s: mail.",
            "paused",
            "silent",
            "Redis",
            "1 task failed",
            "3 tasks wait for a worker to claim them, the oldest for 90 s: pulled.",
            "4 tasks wait because their topics are paused, the oldest for 2 min: held, held.too.",
            "1\u{202f}200 tasks are due and wait.",
        ];
        for (sentence, part) in said.iter().zip(parts) {
            assert!(sentence.text.contains(part), "{}", sentence.text);
        }
        assert_eq!(said.len(), parts.len());
        assert_eq!(said[1].about, Some((Cause::Late, vec!["mail".to_owned()])));
    }

    #[test]
    fn what_waits_because_somebody_paused_it_is_no_trouble_and_has_its_reason() {
        // How many are due was counted at another moment, and is not to be mixed with this.
        for (found, due, expected) in [
            (
                vec![overdue("held", 1, 240, Cause::Paused)],
                3,
                "1 task waits because its topic is paused, for 4 min: held.",
            ),
            (
                vec![overdue("held", 2, 5, Cause::Paused)],
                2,
                "2 tasks wait because their topic is paused, the oldest for 5 s: held.",
            ),
        ] {
            let said = sentences(&Facts { overdue: Some(found), due, ..well() });
            assert_eq!((said.len(), said[0].tone), (2, Tone::Good), "{said:?}");
            assert_eq!(said[1].text, expected);
        }
    }

    #[test]
    fn what_is_due_and_waits_is_told_as_far_as_it_is_known() {
        for (due, waiting, expected) in [
            (0, Some(2), Some("2 tasks are due and wait.")),
            (9, Some(1), Some("1 task is due and waits.")),
            (9, Some(0), None),
            (9, None, Some("9 tasks are due and wait.")),
        ] {
            let said = sentences(&Facts { due, waiting, ..well() });
            assert_eq!(said.get(1).map(|said| &*said.text), expected, "{due} {waiting:?}");
        }
    }
}
