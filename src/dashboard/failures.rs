//! What failed lately, by what went wrong; `/failures` lists the tasks of one cause, or all of them.

use std::sync::Arc;

use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::store::Failure;

use super::form::encoded;
use super::lately::within;
use super::layout::Place;
use super::overview::{DEADLINE, FRESH, PATIENCE, last_hour};
use super::parts::{ago, empty, number, short, table};
use super::visitor::Visitor;
use crate::http::Api;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

/// How many failures are grouped, and how many groups are shown.
const FAILURES: u32 = 1_000;
const CAUSES: usize = 8;
/// How many tasks are listed.
const LISTED: usize = 200;
/// How much of an error is listed, in characters.
const EXCERPT: usize = 160;

/// The address of what failed in the last hour.
pub(super) const OF_LAST_HOUR: &str = "/failures?within=hour";

/// The failures of the last day, as they were seen a moment ago.
pub(super) async fn lately(api: &Api) -> Option<Arc<Vec<Failure>>> {
    let (store, since) = (Arc::clone(&api.store), api.time.now() - TimeDelta::days(1));
    let look = move |_| async move { within(DEADLINE, "what failed", store.failures(since, FAILURES)).await };
    api.glances.failures.get(FRESH, PATIENCE, look).await
}

/// Failures that have one cause.
#[derive(Debug, PartialEq)]
struct Fault<'a> {
    topic: &'a str,
    /// What went wrong, with numbers left out.
    error: String,
    count: usize,
    last: &'a Failure,
}

/// Groups failures, the newest of which comes first, by topic and by what went wrong; the most frequent first.
fn causes(failures: &[Failure]) -> Vec<Fault<'_>> {
    let mut causes: Vec<Fault<'_>> = Vec::new();
    for failure in failures {
        let error = cause(&failure.error);
        match causes.iter_mut().find(|cause| cause.topic == failure.topic && cause.error == error) {
            Some(cause) => cause.count += 1,
            None => causes.push(Fault { topic: &failure.topic, error, count: 1, last: failure }),
        }
    }
    causes.sort_by_key(|cause| std::cmp::Reverse(cause.count));
    causes
}

/// The first line of an error, with every number and id as `#`: they differ where the cause does not.
fn cause(error: &str) -> String {
    let line = error.lines().next().unwrap_or_default();
    let mut said = String::new();
    for word in line.split_inclusive(|c: char| c.is_whitespace() || "\"'()[]{},;:=/".contains(c)) {
        let (body, end) = match word.char_indices().next_back() {
            Some((at, last)) if !last.is_alphanumeric() => word.split_at(at),
            _ => (word, ""),
        };
        let is_id = body.len() >= 8
            && body.contains(|c: char| c.is_ascii_digit())
            && body.chars().all(|c| c.is_ascii_hexdigit() || c == '-');
        if is_id {
            said.push('#');
        } else {
            let mut in_number = false;
            for c in body.chars() {
                match c.is_ascii_digit() {
                    true if in_number => {}
                    true => said.push('#'),
                    false => said.push(c),
                }
                in_number = c.is_ascii_digit();
            }
        }
        said.push_str(end);
    }
    said
}

/// Which failures are asked for.
#[derive(Debug, Default)]
struct Asked {
    topic: Option<String>,
    /// As [`cause`] and [`named`] write it.
    cause: Option<String>,
    /// Not before then.
    since: Option<DateTime<Utc>>,
}

impl Asked {
    fn of(visitor: &Visitor) -> Result<Self, Problem> {
        let mut parameters = Parameters::of(&visitor.uri)?;
        let (topic, cause) = (parameters.text("topic"), parameters.text("cause"));
        let since = parameters.read("within", |text| match text {
            "day" => Ok(None),
            "hour" => Ok(Some(last_hour(visitor.now))),
            _ => Err("must be hour or day".into()),
        });
        parameters.finish()?;
        Ok(Self { topic, cause, since: since.flatten() })
    }

    fn includes(&self, failure: &Failure) -> bool {
        self.topic.as_ref().is_none_or(|topic| *topic == failure.topic)
            && self.cause.as_ref().is_none_or(|asked| asked == named(&cause(&failure.error)))
            && self.since.is_none_or(|since| failure.at >= since)
    }
}

/// `GET /failures`: tasks that failed lately, those of one topic, one cause, or of the last hour.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let asked = Asked::of(&visitor)?;
    let seen = lately(&visitor.api).await;
    let found: Vec<_> = seen.iter().flat_map(|seen| seen.iter()).filter(|failure| asked.includes(failure)).collect();
    let are_all_seen = seen.as_ref().is_some_and(|seen| seen.len() < FAILURES as usize);
    let title = if asked.since.is_some() { "Failures of the last hour" } else { "Failures of the last 24 hours" };
    let body = html! {
        p.trail { a href="/" { "Overview" } " /" }
        h1 { (title) }
        @if asked.topic.is_some() || asked.cause.is_some() {
            div.sheet {
                dl.facts {
                    @if let Some(topic) = &asked.topic { div { dt { "Topic" } dd { a href={ "/tasks?status=failed&topic=" (encoded(topic)) } { (topic) } } } }
                    @if let Some(cause) = &asked.cause { div { dt { "What went wrong" } dd { (cause) } } }
                }
                p.hint { "Numbers and ids are written as #: they differ where the cause does not." }
            }
        }
        section #failures.sheet data-live aria-label=(title) {
            @if seen.is_none() { (empty("What failed is being looked at.")) }
            @else if found.is_empty() { (empty("No such task failed lately.")) }
            @else {
                div.head { span.hint {
                    (number(found.len() as u64)) @if found.len() == 1 { " task" } @else { " tasks" }
                    @if !are_all_seen { " among the last " (number(FAILURES.into())) " that failed" }
                    @if found.len() > LISTED { "; the last " (LISTED) " are listed" }
                } }
                (rows(&found[..found.len().min(LISTED)], visitor.now))
            }
        }
    };
    Ok(visitor.page(Place::Tasks, title, &body))
}

fn rows(failures: &[&Failure], now: DateTime<Utc>) -> Markup {
    let rows: Vec<_> = failures
        .iter()
        .map(|failure| {
            vec![
                html! { a href={ "/tasks/" (failure.task_id) } { (short(failure.task_id)) } },
                html! { (failure.topic) },
                html! { span.bad { (named(&failure.error.chars().take(EXCERPT).collect::<String>())) } },
                ago(failure.at, now),
            ]
        })
        .collect();
    table("Tasks that failed", &["Task", "Topic", "What went wrong", "Failed"], &rows)
}

/// What went wrong, also where nothing was said.
fn named(error: &str) -> &str {
    if error.is_empty() { "(no error was given)" } else { error }
}

pub(super) fn failed(failures: Option<&Vec<Failure>>, now: DateTime<Utc>) -> Markup {
    let is_known = failures.is_some();
    let failures: &[Failure] = failures.map_or(&[], |failures| failures);
    let causes = causes(failures);
    let rows: Vec<_> = causes
        .iter()
        .take(CAUSES)
        .map(|cause| {
            vec![
                html! { strong { (cause.count) "×" } },
                html! {
                    a href={ "/failures?topic=" (encoded(cause.topic)) "&cause=" (encoded(named(&cause.error))) } { (named(cause.last.error.lines().next().unwrap_or_default())) }
                    span.sub { a.plain href={ "/tasks?status=failed&topic=" (encoded(cause.topic)) } { (cause.topic) } }
                },
                html! { a.plain href={ "/tasks/" (cause.last.task_id) } { (ago(cause.last.at, now)) } },
            ]
        })
        .collect();
    html! {
        div.head {
            h2 #failures-title { "Failures of the last 24 hours" }
            @if !failures.is_empty() {
                span.hint {
                    @if failures.len() == FAILURES as usize { "the last " }
                    (number(failures.len() as u64)) ", " (causes.len()) @if causes.len() == 1 { " cause" } @else { " causes" }
                }
            }
        }
        @if !is_known {
            (empty("What failed is being looked at."))
        } @else if rows.is_empty() {
            (empty("No task failed in the last 24 hours. Failures are grouped here by what went wrong."))
        } @else {
            (table("Failures by cause", &["Tasks", "What went wrong", "Last"], &rows))
            @if causes.len() > CAUSES { p.hint { "And " (causes.len() - CAUSES) " more causes: see " a href="/failures" { "all of these tasks" } "." } }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::id::TaskId;

    use super::*;

    #[test]
    fn numbers_and_ids_are_no_causes() {
        for (error, expected) in [
            ("timed out after 30 s", "timed out after # s"),
            ("no user 018f0000-0000-7000-8000-000000000000 here", "no user # here"),
            ("POST http://127.0.0.1:8080/a answered 503", "POST http://#.#.#.#:#/a answered #"),
            ("first\nsecond", "first"),
            ("", ""),
            ("key=ab12cd34ef, rest", "key=#, rest"),
        ] {
            assert_eq!(cause(error), expected);
        }
    }

    #[test]
    fn failures_are_grouped_by_cause_and_topic() {
        let failure = |topic: &str, error: &str| Failure {
            task_id: TaskId::generate(),
            topic: topic.into(),
            error: error.into(),
            at: DateTime::UNIX_EPOCH,
            schedule_id: None,
        };
        let failures = [failure("a", "no 1"), failure("b", "no 1"), failure("b", "no 22"), failure("a", "yes")];
        let found: Vec<_> =
            causes(&failures).iter().map(|cause| (cause.topic, cause.error.clone(), cause.count)).collect();
        assert_eq!(found, [("b", "no #".into(), 2), ("a", "no #".into(), 1), ("a", "yes".into(), 1)]);
        assert_eq!(causes(&failures)[0].last.task_id, failures[1].task_id, "the newest");
    }
}
