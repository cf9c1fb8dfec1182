//! What failed lately, by what went wrong.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::store::Failure;

use super::form::encoded;
use super::lately::within;
use super::overview::{DEADLINE, FRESH, PATIENCE};
use super::parts::{ago, empty, number, table};
use crate::http::Api;

/// How many failures are grouped, and how many groups are shown.
const FAILURES: u32 = 1_000;
const CAUSES: usize = 8;

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
                    a href={ "/tasks/" (cause.last.task_id) } { @if cause.error.is_empty() { "(no error was given)" } @else { (cause.error) } }
                    span.sub { a.plain href={ "/tasks?status=failed&topic=" (encoded(cause.topic)) } { (cause.topic) } }
                },
                ago(cause.last.at, now),
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
            @if causes.len() > CAUSES { p.hint { "And " (causes.len() - CAUSES) " more causes: see " a href="/tasks?status=failed" { "all failed tasks" } "." } }
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
