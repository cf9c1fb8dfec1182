//! How it all is, in words: the first sentences of the overview.

use chrono::TimeDelta;

use super::parts::{Tone, number, relative, span};

/// How many late schedules are named.
const NAMED: usize = 3;

/// What the sentences are about.
#[derive(Debug, Clone, Default)]
pub(crate) struct Facts {
    /// How many schedules are enabled.
    pub(crate) schedules: u64,
    /// Whether it is known which of them are late.
    pub(crate) is_known: bool,
    /// Those whose instant has passed without a fire, and by how much.
    pub(crate) late: Vec<(String, TimeDelta)>,
    /// What fires next, and in how long.
    pub(crate) next: Option<(String, TimeDelta)>,
    /// How many nodes share the database, and how many of them were not heard of.
    pub(crate) nodes: usize,
    pub(crate) silent: usize,
    /// Whether somebody decides what is due.
    pub(crate) has_leader: bool,
    /// Whether this node does no work.
    pub(crate) is_paused: bool,
    /// Whether Redis answers, if there is to be one.
    pub(crate) redis: Option<bool>,
    /// How many tasks are due and wait.
    pub(crate) due: u64,
    /// How many tasks failed in the last hour.
    pub(crate) failed: u64,
}

/// One sentence, and how serious it is.
pub(crate) type Sentence = (Tone, String);

/// What is to be said, the most important first; the first is the headline.
pub(crate) fn sentences(facts: &Facts) -> Vec<Sentence> {
    let mut said = Vec::new();
    if !facts.late.is_empty() {
        said.push((Tone::Bad, late(facts)));
    }
    if facts.is_paused {
        said.push((Tone::Late, "This node is paused: nothing fires and nothing runs here until it is resumed.".into()));
    } else if !facts.has_leader && facts.schedules > 0 {
        said.push((Tone::Bad, "No node leads at the moment: schedules do not fire until one does.".into()));
    }
    match (facts.silent, facts.nodes) {
        (0, _) => {}
        (1, 1) => said.push((Tone::Bad, "The only node is silent.".into())),
        (1, nodes) => {
            said.push((Tone::Bad, format!("1 of {nodes} nodes is silent: it died, or cannot reach the database.")))
        }
        (silent, nodes) => {
            said.push((
                Tone::Bad,
                format!("{silent} of {nodes} nodes are silent: they died, or cannot reach the database."),
            ));
        }
    }
    if facts.redis == Some(false) {
        said.push((
            Tone::Late,
            "Redis does not answer: wake-ups between nodes are slower, and nothing is lost.".into(),
        ));
    }
    if !facts.is_known {
        said.push((Tone::Waiting, "Whether all schedules are on time is being looked at.".into()));
    } else if facts.late.is_empty() {
        said.push((Tone::Good, on_time(facts)));
    }
    if facts.failed > 0 {
        let tasks = if facts.failed == 1 { "1 task".into() } else { format!("{} tasks", number(facts.failed)) };
        said.push((Tone::Late, format!("{tasks} failed in the last hour.")));
    }
    match facts.due {
        0 => {}
        1 => said.push((Tone::Waiting, "1 task is due and waits.".into())),
        due => said.push((Tone::Waiting, format!("{} tasks are due and wait.", number(due)))),
    }
    said
}

fn late(facts: &Facts) -> String {
    let named: Vec<_> = facts.late.iter().take(NAMED).map(|(name, by)| format!("{name} by {}", span(*by))).collect();
    let rest = facts.late.len().saturating_sub(NAMED);
    let more = if rest > 0 { format!(", and {rest} more") } else { String::new() };
    let who = match (facts.late.len(), facts.schedules) {
        (1, 1) => "The only schedule is late".to_owned(),
        (1, all) => format!("1 of {} schedules is late", number(all)),
        (late, all) => format!("{late} of {} schedules are late", number(all)),
    };
    format!("{who}: {}{more}.", named.join(", "))
}

fn on_time(facts: &Facts) -> String {
    let so_far = match facts.schedules {
        0 => return "No schedule is enabled; tasks run when they are due.".to_owned(),
        1 => "The only schedule is on time.".to_owned(),
        schedules => format!("All {} schedules on time.", number(schedules)),
    };
    match &facts.next {
        Some((name, ahead)) => format!("{so_far} Next: {name} {}.", relative(*ahead)),
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
            nodes: 1,
            has_leader: true,
            ..Facts::default()
        }
    }

    fn late(names: &[(&str, i64)]) -> Vec<(String, TimeDelta)> {
        names.iter().map(|(name, seconds)| ((*name).to_owned(), TimeDelta::seconds(*seconds))).collect()
    }

    #[test]
    fn the_first_sentence_says_how_it_is() {
        let by = |change: &dyn Fn(&mut Facts)| {
            let mut facts = well();
            change(&mut facts);
            sentences(&facts).remove(0)
        };
        for (change, tone, expected) in [
            (
                &(|_: &mut Facts| {}) as &dyn Fn(&mut Facts),
                Tone::Good,
                "All 42 schedules on time. Next: nightly-report in 4 min.",
            ),
            (&|facts| facts.schedules = 1, Tone::Good, "The only schedule is on time. Next: nightly-report in 4 min."),
            (&|facts| facts.next = None, Tone::Good, "All 42 schedules on time."),
            (&|facts| facts.is_known = false, Tone::Waiting, "Whether all schedules are on time is being looked at."),
            (&|facts| facts.schedules = 0, Tone::Good, "No schedule is enabled; tasks run when they are due."),
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
            (&|facts| facts.redis = Some(true), Tone::Good, "All 42 schedules on time. Next: nightly-report in 4 min."),
        ] {
            assert_eq!(by(change), (tone, expected.to_owned()));
        }
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
            failed: 1,
            ..well()
        };
        let said: Vec<_> = sentences(&facts).into_iter().map(|(_, sentence)| sentence).collect();
        for (sentence, part) in
            said.iter().zip(["late", "paused", "silent", "Redis", "1 task failed", "1\u{202f}204 tasks"])
        {
            assert!(sentence.contains(part), "{sentence}");
        }
        assert_eq!(said.len(), 6);
    }
}
