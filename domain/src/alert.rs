//! Alerts: what somebody has to know who is not looking.
//!
//! [`alerts`] decides, from [`Signs`] that the store counted over the last hour, on all nodes together. The store sees to
//! it that each [`Cause`] is told once an hour at the most, whichever node notices.

use std::time::Duration;

use chrono::{DateTime, SecondsFormat, Utc};
use serde_json::json;

use crate::event::MissedFire;
use crate::id::MessageId;
use crate::json::Json;
use crate::outbox::{Content, NewMessage};

/// How far back signs are counted, and how long a cause is not told again.
pub const WINDOW: Duration = Duration::from_secs(60 * 60);
/// How long a message may wait before the outbox counts as stuck.
pub const STUCK_AFTER: Duration = Duration::from_secs(30 * 60);
/// The most of each sign that is counted; what is said of more is "at least".
pub const COUNTED: u32 = 1_000;

/// The most tasks that are looked at to see how they ended: the last of them, where more did.
pub const LOOKED_AT: u32 = 100_000;
/// Fewer failures than this are no rate: of a schedule that fires once an hour, one is all of them.
pub const FEWEST_FAILED: u32 = 3;

/// More executions than one in so many must not fail.
const ONE_IN: u64 = 10;
/// More changes of the leader than this within an hour are flapping.
const MOST_CHANGES: u64 = 5;
/// How many missed fires are named.
const NAMED: usize = 5;

/// What an alert is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Cause {
    /// Instants of schedules passed without a fire.
    MissedFire,
    /// Too many executions failed.
    FailedExecutions,
    /// Messages wait too long to be sent.
    OutboxStuck,
    /// The leader changed too often.
    LeaderFlapping,
    /// A plugin says so, by a name of its own.
    OfPlugin(&'static str),
}

impl Cause {
    /// Every cause but those of plugins.
    pub const ALL: [Self; 4] = [Self::MissedFire, Self::FailedExecutions, Self::OutboxStuck, Self::LeaderFlapping];

    /// The one word for it, everywhere.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::MissedFire => "missed_fire",
            Self::FailedExecutions => "failed_executions",
            Self::OutboxStuck => "outbox_stuck",
            Self::LeaderFlapping => "leader_flapping",
            Self::OfPlugin(name) => name,
        }
    }
}

/// What was seen within [`WINDOW`], on all nodes together.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Signs {
    /// Instants that were noted as missed, at most [`COUNTED`].
    pub missed: Vec<MissedFire>,
    /// How tasks of schedules ended, of the last [`LOOKED_AT`] tasks; not looked at where fewer than [`FEWEST_FAILED`] failed.
    pub of_schedules: Ends,
    /// How all other tasks ended.
    pub of_callers: Ends,
    /// Messages that have waited for longer than [`STUCK_AFTER`], counted up to [`COUNTED`].
    pub stuck: Option<Stuck>,
    /// How often a node became the leader.
    pub leader_changes: u64,
}

/// How tasks ended that were not cancelled.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Ends {
    /// Well.
    pub completed: u64,
    /// Badly.
    pub failed: u64,
}

/// Messages that wait too long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stuck {
    /// How many.
    pub messages: u64,
    /// Since when the oldest waits.
    pub since: DateTime<Utc>,
}

/// What somebody has to know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Alert {
    /// What it is about.
    pub cause: Cause,
    /// In one line.
    pub subject: String,
    /// What was seen, and where to look.
    pub text: String,
}

/// What the signs amount to.
pub fn alerts(signs: &Signs) -> Vec<Alert> {
    [missed(&signs.missed), failed(signs), stuck(signs.stuck), flapping(signs.leader_changes)]
        .into_iter()
        .flatten()
        .collect()
}

fn missed(missed: &[MissedFire]) -> Option<Alert> {
    if missed.is_empty() {
        return None;
    }
    let fires = counted(missed.len() as u64, "instant of a schedule was", "instants of schedules were");
    let mut text = String::from(
        "Within the last hour these passed without a fire in time. They are made up for as each schedule's misfirePolicy says:\n\n",
    );
    for fire in missed.iter().take(NAMED) {
        text += &format!("- {} at {}\n", fire.name, shown(fire.scheduled_at));
    }
    if missed.len() > NAMED {
        text += &format!("- and {} more\n", missed.len() - NAMED);
    }
    text += "\nIs any node the leader, is a clock wrong, is the database away or slow? `punctual doctor` looks at these; `punctual prove` \
             says what became of each instant.";
    Some(Alert { cause: Cause::MissedFire, subject: format!("{fires} missed"), text })
}

fn failed(signs: &Signs) -> Option<Alert> {
    let is_over = |ends: &Ends| {
        ends.failed >= u64::from(FEWEST_FAILED) && ends.failed.saturating_mul(ONE_IN) > ends.failed + ends.completed
    };
    let origins = [("tasks of schedules", signs.of_schedules), ("one-off tasks", signs.of_callers)];
    let said: Vec<_> = origins
        .into_iter()
        .filter(|(_, ends)| is_over(ends))
        .map(|(which, Ends { completed, failed })| format!("{failed} of {} {which} failed", failed + completed))
        .collect();
    if said.is_empty() {
        return None;
    }
    let text = format!(
        "Within the last hour {}, which is more than one in {ONE_IN}. `punctual task list --status failed` shows them with their errors; \
         `punctual task retry ID` makes another task of one.",
        said.join(", and ")
    );
    Some(Alert { cause: Cause::FailedExecutions, subject: said.join(", "), text })
}

fn stuck(stuck: Option<Stuck>) -> Option<Alert> {
    let Stuck { messages, since } = stuck?;
    let waiting = counted(messages, "message waits", "messages wait");
    let text = format!(
        "{waiting} for more than {} minutes to be sent, the oldest since {}. `punctual outbox list --status pending` shows them with what \
         went wrong last. Is the mail server or the provider away, or is a transport set up on no node?",
        STUCK_AFTER.as_secs() / 60,
        shown(since)
    );
    Some(Alert { cause: Cause::OutboxStuck, subject: format!("{waiting} to be sent"), text })
}

fn flapping(changes: u64) -> Option<Alert> {
    if changes <= MOST_CHANGES {
        return None;
    }
    let subject = format!("the leader changed {changes} times within an hour");
    let text = format!(
        "A node became the leader {changes} times within the last hour. Each change delays schedules by up to the leader's lease. Look for nodes \
         that restart, stall, or lose the database or Redis; `GET /api/v1/nodes` shows which there are, and since when."
    );
    Some(Alert { cause: Cause::LeaderFlapping, subject, text })
}

/// A count as it is said; of many it is not known how many more there are.
fn counted(count: u64, one: &str, many: &str) -> String {
    match count {
        1 => format!("1 {one}"),
        count if count >= u64::from(COUNTED) => format!("at least {count} {many}"),
        count => format!("{count} {many}"),
    }
}

fn shown(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Secs, true)
}

/// Where alerts go.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Address {
    /// By which transport.
    pub transport: &'static str,
    /// To whom.
    pub recipient: String,
}

impl Alert {
    /// The message that tells it there. Its key is its own: the store knows whether it is told too soon.
    ///
    /// # Errors
    /// When it cannot be written as JSON.
    pub fn message(&self, to: &Address) -> Result<NewMessage, serde_json::Error> {
        let id = MessageId::generate();
        let content = Content {
            subject: format!("Punctual: {}", self.subject),
            text: self.text.clone(),
            data: Some(json!({"cause": self.cause.as_str()})),
            ..Content::default()
        };
        Ok(NewMessage {
            id,
            dedupe_key: format!("alert__{}__{id}", self.cause.as_str()),
            transport: to.transport.to_owned(),
            recipient: to.recipient.clone(),
            // The names of schedules hold nothing that the database could not.
            body: Json::from_stored(serde_json::to_string(&content)?),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ScheduleId;

    fn fires(count: usize) -> Vec<MissedFire> {
        let at = "2026-11-16T12:00:00.123Z".parse().unwrap();
        let fire = |i| MissedFire {
            schedule_id: ScheduleId::generate(),
            name: format!("nightly {i}"),
            topic: "report".into(),
            scheduled_at: at,
            noted_at: at,
        };
        (0..count).map(fire).collect()
    }

    fn ends(completed: u64, failed: u64) -> Ends {
        Ends { completed, failed }
    }

    #[test]
    fn what_the_signs_amount_to_is_in_the_table() {
        let since = "2026-11-16T12:00:00Z".parse().unwrap();
        let stuck = |messages| Some(Stuck { messages, since });
        let signs = Signs::default;
        for (seen, told) in [
            (signs(), &[][..]),
            (Signs { missed: fires(1), ..signs() }, &["1 instant of a schedule was missed"]),
            (Signs { missed: fires(7), ..signs() }, &["7 instants of schedules were missed"]),
            (Signs { missed: fires(1000), ..signs() }, &["at least 1000 instants of schedules were missed"]),
            // One in ten is not over it, and few are no rate.
            (Signs { of_schedules: ends(27, 3), ..signs() }, &[]),
            (Signs { of_schedules: ends(26, 3), ..signs() }, &["3 of 29 tasks of schedules failed"]),
            (Signs { of_schedules: ends(0, 2), of_callers: ends(1, 2), ..signs() }, &[]),
            (Signs { of_schedules: ends(0, 3), ..signs() }, &["3 of 3 tasks of schedules failed"]),
            // Many that are well do not hide those of the other kind that are not.
            (
                Signs { of_schedules: ends(90, 11), of_callers: ends(100_000, 500), ..signs() },
                &["11 of 101 tasks of schedules failed"],
            ),
            (
                Signs { of_schedules: ends(1, 9), of_callers: ends(50, 50), ..signs() },
                &["9 of 10 tasks of schedules failed, 50 of 100 one-off tasks failed"],
            ),
            (
                Signs { of_callers: ends(u64::MAX / 2, u64::MAX / 4), ..signs() },
                &["4611686018427387903 of 13835058055282163710 one-off tasks failed"],
            ),
            (Signs { stuck: stuck(1), ..signs() }, &["1 message waits to be sent"]),
            (Signs { stuck: stuck(999), ..signs() }, &["999 messages wait to be sent"]),
            (Signs { stuck: stuck(1000), ..signs() }, &["at least 1000 messages wait to be sent"]),
            (Signs { leader_changes: 5, ..signs() }, &[]),
            (Signs { leader_changes: 6, ..signs() }, &["the leader changed 6 times within an hour"]),
            (
                Signs { missed: fires(1), of_callers: ends(0, 9), stuck: stuck(2), leader_changes: 9, ..signs() },
                &[
                    "1 instant of a schedule was missed",
                    "9 of 9 one-off tasks failed",
                    "2 messages wait to be sent",
                    "the leader changed 9 times within an hour",
                ],
            ),
        ] {
            let subjects: Vec<_> = alerts(&seen).into_iter().map(|alert| alert.subject).collect();
            assert_eq!(subjects, told, "{:?}", Signs { missed: Vec::new(), ..seen });
        }
    }

    #[test]
    fn every_cause_is_told_as_itself() {
        let signs = Signs {
            missed: fires(1),
            of_callers: ends(0, 9),
            stuck: Some(Stuck { messages: 1, since: DateTime::UNIX_EPOCH }),
            leader_changes: 9,
            ..Signs::default()
        };
        assert_eq!(alerts(&signs).iter().map(|alert| alert.cause).collect::<Vec<_>>(), Cause::ALL);
    }

    #[test]
    fn the_first_missed_fires_are_named() {
        let text = |count| alerts(&Signs { missed: fires(count), ..Signs::default() }).remove(0).text;
        assert!(text(5).contains("- nightly 0 at 2026-11-16T12:00:00Z\n") && text(5).contains("nightly 4"));
        assert!(!text(5).contains("more\n") && text(6).contains("- and 1 more\n") && !text(6).contains("nightly 5"));
    }

    #[test]
    fn a_message_says_what_the_alert_says_under_a_key_of_its_own() {
        let alert = alerts(&Signs { leader_changes: 6, ..Signs::default() }).remove(0);
        let to = Address { transport: "smtp", recipient: "ada@example.com".into() };
        let [first, second] = [(), ()].map(|()| alert.message(&to).unwrap());
        assert_ne!(first.dedupe_key, second.dedupe_key);
        assert!(first.dedupe_key.starts_with("alert__leader_flapping__"), "{}", first.dedupe_key);
        assert_eq!((first.transport.as_str(), first.recipient.as_str()), ("smtp", "ada@example.com"));
        let content: Content = serde_json::from_str(first.body.as_str()).unwrap();
        assert_eq!(content.subject, "Punctual: the leader changed 6 times within an hour");
        assert_eq!((content.text, content.data), (alert.text, Some(json!({"cause": "leader_flapping"}))));
    }
}
