//! `/`: is anything late, what fires next, what failed, is a node down?

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Counts, EndedMinute, Failure, Load};
use tokio::time::timeout;

use super::chart::{self, Column};
use super::form::encoded;
use super::health::{self, Facts};
use super::lately::Lately;
use super::layout::Place;
use super::parts::{Tone, ago, badge, clock, empty, number, short, span, table, zone_clock};
use super::visitor::Visitor;
use crate::http::Api;
use crate::http::health::redis_is_up;
use crate::http::nodes::{self, KnownNode};
use crate::http::problem::Problem;

/// How old what is shown may be, and how long a page waits for something newer.
pub(crate) const FRESH: Duration = Duration::from_secs(1);
const PATIENCE: Duration = Duration::from_millis(60);
/// How long a look may take that nobody waits for.
const DEADLINE: Duration = Duration::from_secs(10);

/// How much of the past the charts show, in minutes.
const MINUTES: i64 = 60;
/// How many schedules are looked at for what comes next, and how many instants of all of them.
const SCHEDULES: u32 = 200;
const INSTANTS: usize = 20_000;
/// How many of the schedules that fire next are named.
const NAMED: usize = 8;
/// How many failures are grouped, and how many groups are shown.
const FAILURES: u32 = 1_000;
const CAUSES: usize = 8;
/// From when on a schedule whose instant has passed is late: deciding takes a moment.
const LATE: TimeDelta = TimeDelta::seconds(10);

/// What the overview saw a moment ago.
#[derive(Default)]
pub(crate) struct Glances {
    counts: Lately<Counts>,
    minutes: Lately<Vec<EndedMinute>>,
    failures: Lately<Vec<Failure>>,
    ahead: Lately<Ahead>,
    /// What the page of topics saw.
    pub(crate) loads: Lately<Vec<Load>>,
}

/// What comes next.
struct Ahead {
    /// Overdue schedules first.
    schedules: Vec<Schedule>,
    /// The coming fires: which of the schedules, and when.
    fires: Vec<(DateTime<Utc>, usize)>,
}

/// `GET /`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let api = &visitor.api;
    let (nodes, redis, counts, minutes, failures, ahead) =
        tokio::join!(nodes::known(api), redis(api), counts(api), minutes(api), failures(api), ahead(api));
    let nodes = nodes?;
    let now = visitor.now;
    let facts = facts(&visitor, &nodes, redis, counts.as_deref(), minutes.as_deref(), ahead.as_deref());
    let body = html! {
        section #health data-live { (headline(&facts, counts.as_deref())) }
        div.grid.even {
            section #throughput.sheet data-live aria-labelledby="throughput-title" { (throughput(minutes.as_deref())) }
            section #lag.sheet data-live aria-labelledby="lag-title" { (lag(minutes.as_deref())) }
        }
        section #ahead.sheet data-live aria-labelledby="ahead-title" { (timeline(api, ahead.as_deref(), now)) }
        div.grid {
            section #failures.sheet data-live aria-labelledby="failures-title" { (failed(failures.as_deref(), now)) }
            section #nodes.sheet data-live aria-labelledby="nodes-title" { (node_list(&nodes, now)) }
        }
    };
    Ok(visitor.page(Place::Overview, "Overview", &body))
}

async fn redis(api: &Api) -> Option<bool> {
    match timeout(PATIENCE, redis_is_up(api)).await {
        Ok(answer) => answer,
        Err(_) => Some(false),
    }
}

async fn counts(api: &Api) -> Option<Arc<Counts>> {
    let store = Arc::clone(&api.store);
    let look = |_| async move { timeout(DEADLINE, store.counts()).await.ok()?.ok() };
    api.glances.counts.get(FRESH, PATIENCE, look).await
}

async fn failures(api: &Api) -> Option<Arc<Vec<Failure>>> {
    let (store, since) = (Arc::clone(&api.store), api.time.now() - TimeDelta::days(1));
    let look = move |_| async move { timeout(DEADLINE, store.failures(since, FAILURES)).await.ok()?.ok() };
    api.glances.failures.get(FRESH, PATIENCE, look).await
}

/// The last hour by minutes. Those that are over are counted once.
async fn minutes(api: &Api) -> Option<Arc<Vec<EndedMinute>>> {
    let (store, now) = (Arc::clone(&api.store), api.time.now());
    let this = now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now);
    let first = this - TimeDelta::minutes(MINUTES - 1);
    let look = move |before: Option<Arc<Vec<EndedMinute>>>| async move {
        // What ended at the end of a minute may have appeared a moment after it: the last two are counted again.
        let over = this - TimeDelta::minutes(1);
        let known = before.iter().flat_map(|before| before.iter());
        let mut minutes: Vec<_> = known.filter(|minute| (first..over).contains(&minute.at)).copied().collect();
        let from = minutes.last().map_or(first, |last| last.at + TimeDelta::minutes(1));
        let missing = u32::try_from((this - from).num_minutes() + 1).ok()?;
        minutes.extend(timeout(DEADLINE, store.ended_minutes(from, missing)).await.ok()?.ok()?);
        Some(minutes)
    };
    api.glances.minutes.get(FRESH, PATIENCE, look).await
}

async fn ahead(api: &Api) -> Option<Arc<Ahead>> {
    let (store, zones, now) = (Arc::clone(&api.store), api.zones.clone(), api.time.now());
    let look = move |_| async move {
        let reading = async { tokio::try_join!(store.next_schedules(SCHEDULES), store.calendars()) };
        let (schedules, calendars) = timeout(DEADLINE, reading).await.ok()?.ok()?;
        let looking = move || {
            let end = now + TimeDelta::hours(1);
            let mut fires = Vec::new();
            for (i, schedule) in schedules.iter().enumerate() {
                let Ok(outlook) = Outlook::new(schedule, &calendars, &zones) else { continue };
                let after = schedule.fired_through.map_or(now, |through| through.max(now));
                let Ok(found) = outlook.between(after + TimeDelta::microseconds(1), end, INSTANTS - fires.len()) else {
                    break;
                };
                fires.extend(found.instants.into_iter().map(|at| (at, i)));
            }
            fires.sort_unstable();
            Ahead { schedules, fires }
        };
        tokio::task::spawn_blocking(looking).await.ok()
    };
    api.glances.ahead.get(FRESH, PATIENCE, look).await
}

fn facts(
    visitor: &Visitor,
    nodes: &[KnownNode],
    redis: Option<bool>,
    counts: Option<&Counts>,
    minutes: Option<&Vec<EndedMinute>>,
    ahead: Option<&Ahead>,
) -> Facts {
    let now = visitor.now;
    let schedules: &[Schedule] = ahead.map_or(&[], |ahead| &ahead.schedules);
    let due_at = |schedule: &Schedule| Some((schedule.definition.name.clone(), schedule.next_fire_at? - now));
    let (late, coming): (Vec<_>, Vec<_>) = schedules.iter().filter_map(due_at).partition(|(_, ahead)| *ahead < -LATE);
    Facts {
        schedules: counts.map_or(schedules.len() as u64, |counts| counts.schedules),
        is_known: ahead.is_some(),
        late: late.into_iter().map(|(name, ahead)| (name, -ahead)).collect(),
        next: coming.into_iter().next(),
        nodes: nodes.len(),
        silent: nodes.iter().filter(|node| node.is_silent).count(),
        has_leader: nodes.iter().any(|node| node.leads),
        is_paused: visitor.api.state.is_paused(),
        redis,
        due: counts.map_or(0, |counts| counts.due.iter().map(|depth| depth.tasks).sum()),
        failed: minutes.map_or(0, |minutes| minutes.iter().map(|minute| minute.failed).sum()),
    }
}

fn headline(facts: &Facts, counts: Option<&Counts>) -> Markup {
    let sentences = health::sentences(facts);
    let (first, more) = sentences.split_first().map_or((None, &[][..]), |(first, more)| (Some(first), more));
    html! {
        div.health.sheet {
            @if let Some((tone, sentence)) = first {
                h1 class={ "headline " (tone.class()) } { (sentence) }
            }
            @if !more.is_empty() {
                ul.more { @for (tone, sentence) in more { li class=(tone.class()) { (sentence) } } }
            }
            @if let Some(counts) = counts {
                dl.tiles {
                    div { dt { a href="/schedules?enabled=true" { "Schedules" } } dd { (number(counts.schedules)) } }
                    div { dt { a href="/tasks?status=running" { "Running" } } dd { (number(counts.running)) } }
                    div { dt { a href="/tasks?status=pending" { "Due" } } dd { (number(facts.due)) } }
                    div { dt { a href="/outbox" { "Outbox" } } dd { (number(counts.outbox)) } }
                    div { dt { a href="/tasks?status=failed" { "Failed (1 h)" } } dd { (number(facts.failed)) } }
                    div { dt { a href="/nodes" { "Nodes" } } dd { (facts.nodes) } }
                }
            } @else {
                p.hint { "The database is being counted." }
            }
        }
    }
}

fn throughput(minutes: Option<&Vec<EndedMinute>>) -> Markup {
    let minutes: &[EndedMinute] = minutes.map_or(&[], |minutes| minutes);
    let (ended, failed): (u64, u64) =
        minutes.iter().fold((0, 0), |(ended, failed), minute| (ended + minute.ended, failed + minute.failed));
    let most = minutes.iter().map(|minute| minute.ended).max().unwrap_or_default();
    let about = format!(
        "Tasks that ended in each minute of the last hour: {} in all, {} failed, at most {} in a minute",
        number(ended),
        number(failed),
        number(most)
    );
    let columns: Vec<_> = minutes
        .iter()
        .map(|minute| Column {
            title: format!(
                "{} UTC: {} ended, {} failed",
                minute.at.format("%H:%M"),
                number(minute.ended),
                number(minute.failed)
            ),
            value: minute.ended,
            bad: minute.failed,
        })
        .collect();
    html! {
        div.head {
            h2 #throughput-title { "Tasks ended" }
            span.hint { (number(ended)) " in the last hour" @if failed > 0 { ", " span.bad { (number(failed)) " failed" } } }
        }
        @if ended == 0 {
            (empty("No task ended in the last hour. Each minute becomes a column here."))
        } @else {
            (chart::columns(&about, &columns, Tone::Good))
            div.axis { span { "60 min ago" } span { "peak " (number(most)) "/min" } span { "now" } }
        }
    }
}

fn lag(minutes: Option<&Vec<EndedMinute>>) -> Markup {
    let minutes: &[EndedMinute] = minutes.map_or(&[], |minutes| minutes);
    let lags: Vec<_> = minutes.iter().map(|minute| minute.lag.map(|lag| lag.as_seconds_f64())).collect();
    let most = minutes.iter().filter_map(|minute| minute.lag).max();
    let last = minutes.iter().rev().find_map(|minute| minute.lag);
    html! {
        div.head {
            h2 #lag-title { "Start lag" }
            @if let Some(last) = last { span.hint { "lately " (span(last)) " after the time asked for" } }
        }
        @match most {
            None => { (empty("Nothing started in the last hour. How late tasks begin is drawn here.")) }
            Some(most) => {
                (chart::line("busy", &format!("How late tasks began in each minute of the last hour: at most {} on average", span(most)), &lags, 600, 72))
                div.axis { span { "60 min ago" } span { "worst " (span(most)) } span { "now" } }
            }
        }
    }
}

fn timeline(api: &Api, ahead: Option<&Ahead>, now: DateTime<Utc>) -> Markup {
    let (schedules, fires): (&[Schedule], &[_]) = ahead.map_or((&[], &[]), |ahead| (&ahead.schedules, &ahead.fires));
    let mut columns: Vec<_> =
        (0..MINUTES).map(|minute| Column { title: format!("in {minute} min: nothing"), value: 0, bad: 0 }).collect();
    for (at, i) in fires {
        let minute = usize::try_from((*at - now).num_minutes().max(0)).unwrap_or_default();
        let Some(column) = columns.get_mut(minute) else { continue };
        column.value += 1;
        let name = &schedules[*i].definition.name;
        column.title = match column.value {
            1 => format!("in {minute} min: {name}"),
            2..=5 => format!("{}, {name}", column.title),
            6 => format!("{}, …", column.title),
            _ => std::mem::take(&mut column.title),
        };
    }
    let about = format!("How many fires come in each minute of the next hour: {} in all", fires.len());
    let mut named = HashSet::new();
    let rows: Vec<_> = fires
        .iter()
        .filter(|(_, i)| named.insert(*i))
        .take(NAMED)
        .map(|(at, i)| {
            let Schedule { id, definition, .. } = &schedules[*i];
            let zone = api.zones.zone(&definition.timezone).ok();
            vec![
                ago(*at, now),
                html! { a href={ "/schedules/" (id) } { (definition.name) } span.sub { (definition.topic) } },
                clock(*at),
                html! { @if let Some(zone) = &zone { (zone_clock(*at, zone)) } },
            ]
        })
        .collect();
    html! {
        div.head {
            h2 #ahead-title { "The next hour" }
            span.hint {
                @if schedules.len() == SCHEDULES as usize { "the " (SCHEDULES) " schedules that come first: " }
                (number(fires.len() as u64)) @if fires.len() == 1 { " fire" } @else { " fires" }
            }
        }
        @if fires.is_empty() {
            (empty("Nothing fires within the next hour. Coming fires are drawn here, minute by minute."))
        } @else {
            (chart::columns(&about, &columns, Tone::Busy))
            div.axis { span { "now" } span { "in 15 min" } span { "in 30 min" } span { "in 45 min" } span { "in 60 min" } }
            (table("What fires next", &["In", "Schedule", "Your time", "Its own zone"], &rows))
        }
    }
}

/// Failures that have one cause.
#[derive(Debug, PartialEq)]
struct Cause<'a> {
    topic: &'a str,
    /// What went wrong, with numbers left out.
    error: String,
    count: usize,
    last: &'a Failure,
}

/// Groups failures, the newest of which comes first, by topic and by what went wrong; the most frequent first.
fn causes(failures: &[Failure]) -> Vec<Cause<'_>> {
    let mut causes: Vec<Cause<'_>> = Vec::new();
    for failure in failures {
        let error = cause(&failure.error);
        match causes.iter_mut().find(|cause| cause.topic == failure.topic && cause.error == error) {
            Some(cause) => cause.count += 1,
            None => causes.push(Cause { topic: &failure.topic, error, count: 1, last: failure }),
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

fn failed(failures: Option<&Vec<Failure>>, now: DateTime<Utc>) -> Markup {
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
        @if rows.is_empty() {
            (empty("No task failed in the last 24 hours. Failures are grouped here by what went wrong."))
        } @else {
            (table("Failures by cause", &["Tasks", "What went wrong", "Last"], &rows))
            @if causes.len() > CAUSES { p.hint { "And " (causes.len() - CAUSES) " more causes: see " a href="/tasks?status=failed" { "all failed tasks" } "." } }
        }
    }
}

fn node_list(nodes: &[KnownNode], now: DateTime<Utc>) -> Markup {
    let rows: Vec<_> = nodes
        .iter()
        .map(|node| {
            let KnownNode { node, about, is_silent, leads } = node;
            let (tone, word) = match (is_silent, about.paused, leads) {
                (true, ..) => (Tone::Bad, "silent"),
                (_, true, _) => (Tone::Late, "paused"),
                (_, _, true) => (Tone::Good, "leads"),
                _ => (Tone::Quiet, "stands by"),
            };
            vec![
                html! { a href="/nodes" { (short(node.id)) } @if let Some(listen) = &about.listen { span.sub { (listen) } } },
                badge(tone, word),
                html! { (ago(node.seen_at, now)) span.sub { "up " (span(now - node.started_at)) } },
                html! { (node.version) span.sub { "zones " (node.tz_version) } },
            ]
        })
        .collect();
    html! {
        div.head { h2 #nodes-title { "Nodes" } }
        @if rows.is_empty() {
            (empty("No node was heard of in the last ten minutes."))
        } @else {
            (table("Nodes that share the database", &["Node", "State", "Heard of", "Release"], &rows))
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
