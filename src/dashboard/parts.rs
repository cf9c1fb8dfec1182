//! Parts that many pages have, so that they look alike: times, badges, tables, pagers.

use axum::http::Uri;
use chrono::{DateTime, SecondsFormat, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::fire::FireStatus;
use punctual_domain::task::TaskStatus;
use punctual_domain::time::Zone;

use super::form::{Form, encoded};

/// How something is, as colour; words say the same beside it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Tone {
    Good,
    Bad,
    Late,
    Busy,
    Waiting,
    Quiet,
}

impl Tone {
    /// The class of the stylesheet.
    pub(crate) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Bad => "bad",
            Self::Late => "late",
            Self::Busy => "busy",
            Self::Waiting => "waiting",
            Self::Quiet => "quiet",
        }
    }

    /// Of a task's status.
    pub(crate) fn of_task(status: TaskStatus) -> Self {
        match status {
            TaskStatus::Pending => Self::Waiting,
            TaskStatus::Running => Self::Busy,
            TaskStatus::Completed => Self::Good,
            TaskStatus::Failed => Self::Bad,
            TaskStatus::Cancelled => Self::Quiet,
        }
    }

    /// Of an execution's status.
    pub(crate) fn of_fire(status: FireStatus) -> Self {
        match status {
            FireStatus::Task(status) => Self::of_task(status),
            FireStatus::Dispatched => Self::Busy,
            FireStatus::Skipped => Self::Late,
        }
    }
}

/// A word in a coloured frame.
pub(crate) fn badge(tone: Tone, word: &str) -> Markup {
    html! { span class={ "badge " (tone.class()) } { (word) } }
}

/// A task's status.
pub(crate) fn status(status: TaskStatus) -> Markup {
    badge(Tone::of_task(status), status.as_str())
}

/// An instant as the time until or since then; the whole of it on hovering. The script lets it tick.
pub(crate) fn ago(at: DateTime<Utc>, now: DateTime<Utc>) -> Markup {
    html! { time datetime=(rfc(at)) data-ago title=(full(at)) { (relative(at - now)) } }
}

/// An instant as a clock shows it: in UTC, and where there is the script in the reader's own zone.
pub(crate) fn clock(at: DateTime<Utc>) -> Markup {
    html! { time datetime=(rfc(at)) data-clock title=(full(at)) { (at.format("%Y-%m-%d %H:%M:%S UTC")) } }
}

/// An instant as the clocks of a zone show it.
pub(crate) fn zone_clock(at: DateTime<Utc>, zone: &Zone) -> Markup {
    html! { time datetime=(rfc(at)) title=(full(at)) { (zone.local(at).format("%a %d %b %H:%M")) " " span.zone { (zone.name()) } } }
}

/// Says what would be in a place where there is nothing.
pub(crate) fn empty(sentence: &str) -> Markup {
    html! { p.empty { (sentence) } }
}

/// A table; on a phone each row becomes a card. `caption` says what it is to those who do not see it.
pub(crate) fn table(caption: &str, heads: &[&str], rows: &[Vec<Markup>]) -> Markup {
    html! {
        table {
            caption.unseen { (caption) }
            thead { tr { @for head in heads { th scope="col" { (head) } } } }
            tbody {
                @for row in rows {
                    tr { @for (head, cell) in heads.iter().zip(row) { td data-label=(head) { div { (cell) } } } }
                }
            }
        }
    }
}

/// Names and what belongs to them.
pub(crate) fn facts(facts: &[(&str, Markup)]) -> Markup {
    html! {
        dl.facts {
            @for (name, value) in facts { div { dt { (name) } dd { (value) } } }
        }
    }
}

/// Leads to the next page of a list, and back to the first.
pub(crate) fn pager(uri: &Uri, next_cursor: Option<&str>) -> Markup {
    let is_first = !uri.query().is_some_and(|query| query.split('&').any(|pair| pair.starts_with("cursor=")));
    html! {
        @if next_cursor.is_some() || !is_first {
            nav.pager aria-label="More of the list" {
                @if !is_first { a.button href=(with(uri, "cursor", None)) { "First page" } }
                @if let Some(cursor) = next_cursor { a.button href=(with(uri, "cursor", Some(cursor))) rel="next" { "Next page" } }
            }
        }
    }
}

/// A button that does one thing at once.
pub(crate) fn act(action: &str, word: &str, class: &str) -> Markup {
    html! { form.act method="post" action=(action) { button class=(class) type="submit" { (word) } } }
}

/// The same address with a parameter set to something else, or left out.
pub(crate) fn with(uri: &Uri, name: &str, value: Option<&str>) -> String {
    let given = Form::of(uri.query().unwrap_or_default()).unwrap_or_default();
    let kept = given.pairs().filter(|(known, value)| *known != name && !value.is_empty());
    let mut query: Vec<String> = kept.map(|(name, value)| format!("{}={}", encoded(name), encoded(value))).collect();
    query.extend(value.map(|value| format!("{name}={}", encoded(value))));
    match query.is_empty() {
        true => uri.path().to_owned(),
        false => format!("{}?{}", uri.path(), query.join("&")),
    }
}

/// A stretch of time in a few characters: `850 ms`, `4 min`, `3 h`.
pub(crate) fn span(span: TimeDelta) -> String {
    let span = span.abs();
    match span.num_seconds() {
        ..1 => format!("{} ms", span.num_milliseconds()),
        1..10 if span.subsec_nanos() >= 50_000_000 => format!("{:.1} s", span.as_seconds_f64()),
        seconds @ ..100 => format!("{seconds} s"),
        seconds @ ..5_400 => format!("{} min", (seconds + 30) / 60),
        seconds @ ..172_800 => format!("{} h", (seconds + 1_800) / 3_600),
        seconds => format!("{} d", (seconds + 43_200) / 86_400),
    }
}

/// The time until an instant, or since. The script says it in the same words.
pub(crate) fn relative(ahead: TimeDelta) -> String {
    let whole = TimeDelta::seconds(ahead.num_seconds().abs());
    match ahead.num_seconds() {
        0 => "now".to_owned(),
        1.. => format!("in {}", span(whole)),
        _ => format!("{} ago", span(whole)),
    }
}

/// The end of an id, which tells it from its neighbours; the whole of it on hovering.
pub(crate) fn short(id: impl std::fmt::Display) -> Markup {
    let id = id.to_string();
    html! { code title=(id) { "…" (id.get(id.len().saturating_sub(8)..).unwrap_or(&id)) } }
}

/// A number that people can read.
pub(crate) fn number(number: u64) -> String {
    let digits = number.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join("\u{202f}")
}

fn rfc(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn full(at: DateTime<Utc>) -> String {
    at.format("%A %Y-%m-%d %H:%M:%S%.3f UTC").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_time_until_then_is_said_shortly() {
        for (seconds, expected) in [
            (0, "now"),
            (4, "in 4 s"),
            (-12, "12 s ago"),
            (240, "in 4 min"),
            (-5_000, "83 min ago"),
            (7_200, "in 2 h"),
            (-200_000, "2 d ago"),
        ] {
            assert_eq!(relative(TimeDelta::seconds(seconds)), expected);
        }
        assert_eq!(span(TimeDelta::milliseconds(850)), "850 ms");
        assert_eq!(span(TimeDelta::milliseconds(1_500)), "1.5 s");
        assert_eq!(span(TimeDelta::milliseconds(2_000)), "2 s");
    }

    #[test]
    fn numbers_are_grouped() {
        for (given, expected) in
            [(0, "0"), (999, "999"), (1_000, "1\u{202f}000"), (1_234_567, "1\u{202f}234\u{202f}567")]
        {
            assert_eq!(number(given), expected);
        }
    }

    #[test]
    fn one_parameter_of_an_address_is_exchanged() {
        let uri: Uri = "/tasks?status=failed&topic=a%20b&cursor=old".parse().unwrap();
        assert_eq!(with(&uri, "cursor", Some("x y")), "/tasks?status=failed&topic=a%20b&cursor=x%20y");
        assert_eq!(with(&uri, "status", None), "/tasks?topic=a%20b&cursor=old");
        assert_eq!(with(&"/tasks?cursor=a".parse().unwrap(), "cursor", None), "/tasks");
    }
}
