//! `/`: is anything late, what fires next, what failed, is a node down?

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use chrono::{DateTime, DurationRound, SecondsFormat, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Counts, EndedMinute, Failure, Load};
use punctual_domain::topic::{Route, Topic, TopicDefinition};

use super::ahead::{self, Ahead, LATE, SCHEDULES, timeline};
use super::chart::{self, Column};
use super::failures::{self, failed};
use super::form::encoded;
use super::health::{self, Cause, Facts, OVERDUE, Overdue};
use super::lately::{Lately, within};
use super::layout::Place;
use super::live::Live;
use super::month;
use super::parts::{Tone, ago, badge, empty, number, short, span, table};
use super::topics::{self, Loads};
use super::visitor::Visitor;
use crate::http::Api;
use crate::http::health::redis_is_up;
use crate::http::nodes::{self, KnownNode};
use crate::http::problem::Problem;

/// How old what is shown may be, and how long a page waits for something newer.
pub(crate) const FRESH: Duration = Duration::from_secs(1);
pub(super) const PATIENCE: Duration = Duration::from_millis(60);
/// How long a look may take that nobody waits for.
pub(crate) const DEADLINE: Duration = Duration::from_secs(10);

/// How much of the past the charts show, in minutes.
const MINUTES: i64 = 60;

/// What the overview saw a moment ago.
#[derive(Default)]
pub(crate) struct Glances {
    counts: Lately<Counts>,
    minutes: Lately<Vec<EndedMinute>>,
    pub(super) failures: Lately<Vec<Failure>>,
    /// Whether Redis answers.
    redis: Lately<bool>,
    pub(super) ahead: Lately<Ahead>,
    /// Whether anything happened.
    pub(crate) live: Live,
    /// What the page of topics saw.
    pub(crate) loads: Lately<Loads>,
    /// What the calendar saw.
    pub(super) months: month::Seen,
}

/// `GET /`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let api = &visitor.api;
    let (nodes, redis, counts, minutes, failures, ahead, loads, topics) = tokio::join!(
        nodes::known(api),
        redis(api),
        counts(api),
        minutes(api),
        failures::lately(api),
        ahead::lately(api),
        topics::loads(api, PATIENCE),
        api.topics.definitions(),
    );
    let (nodes, topics) = (nodes?, topics?);
    let now = visitor.now;
    let facts = Facts {
        overdue: loads.as_ref().map(|loads| overdue(&loads.topics, &topics, loads.at)),
        waiting: loads.as_ref().map(|loads| waiting(&loads.topics, &topics)),
        ..facts(&visitor, &nodes, redis, counts.as_deref(), minutes.as_deref(), ahead.as_deref())
    };
    let body = html! {
        section #health data-live { (headline(&facts, counts.as_deref(), now)) }
        div.grid.even {
            section #throughput.sheet data-live aria-labelledby="throughput-title" { (throughput(minutes.as_deref())) }
            section #lag.sheet data-live aria-labelledby="lag-title" { (lag(minutes.as_deref())) }
        }
        section #ahead.sheet data-live aria-labelledby="ahead-title" { (timeline(&api.zones, ahead.as_deref(), now)) }
        div.grid {
            section #failures.sheet data-live aria-labelledby="failures-title" { (failed(failures.as_deref(), now)) }
            section #nodes.sheet data-live aria-labelledby="nodes-title" { (node_list(&nodes, now)) }
        }
    };
    Ok(visitor.page(Place::Overview, "Overview", &body))
}

/// Whether Redis answers, if there is to be one and that is known.
async fn redis(api: &Arc<Api>) -> Option<bool> {
    api.redis.as_ref()?;
    let asking = Arc::clone(api);
    let look = move |_| async move { Ok(redis_is_up(&asking).await.unwrap_or(true)) };
    api.glances.redis.get(FRESH, PATIENCE, look).await.as_deref().copied()
}

async fn counts(api: &Api) -> Option<Arc<Counts>> {
    let store = Arc::clone(&api.store);
    let look = |_| async move { within(DEADLINE, "how much there is", store.counts()).await };
    api.glances.counts.get(FRESH, PATIENCE, look).await
}

/// The last hour by minutes. Those that are over are counted once.
async fn minutes(api: &Api) -> Option<Arc<Vec<EndedMinute>>> {
    let (store, now) = (Arc::clone(&api.store), api.time.now());
    let this = now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now);
    let look = move |before: Option<Arc<Vec<EndedMinute>>>| async move {
        let mut minutes = counted(before.as_deref().map_or(&[], |before| before), this);
        let from = minutes.last().map_or(first_minute(this), |last| last.at + TimeDelta::minutes(1));
        let missing = u32::try_from((this - from).num_minutes() + 1)?;
        minutes.extend(within(DEADLINE, "what ended in the last hour", store.ended_minutes(from, missing)).await?);
        Ok(minutes)
    };
    api.glances.minutes.get(FRESH, PATIENCE, look).await
}

/// Where the hour begins whose minutes are shown.
pub(super) fn last_hour(now: DateTime<Utc>) -> DateTime<Utc> {
    first_minute(now.duration_trunc(TimeDelta::minutes(1)).unwrap_or(now))
}

/// The first of the minutes that are shown in `this` one.
fn first_minute(this: DateTime<Utc>) -> DateTime<Utc> {
    this - TimeDelta::minutes(MINUTES - 1)
}

/// Those minutes of the look before that need not be counted again. Its last two do, however long ago it was: the last was
/// not over then, and what ended at the end of the one before may have appeared a moment after it.
fn counted(before: &[EndedMinute], this: DateTime<Utc>) -> Vec<EndedMinute> {
    let counted = &before[..before.len().saturating_sub(2)];
    // Of a clock that went back nothing is kept that is yet to come.
    let shown = first_minute(this)..this;
    counted.iter().filter(|minute| shown.contains(&minute.at)).copied().collect()
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
    let named = |schedule: &Schedule| Some((schedule.definition.name.clone(), schedule.next_fire_at?));
    let late = ahead.map(Ahead::late).unwrap_or_default();
    // What fires all the time is no news; it is named where there is nothing else.
    let is_rare = |i: &usize| ahead.is_none_or(|ahead| !ahead.often.contains(i));
    let coming =
        |i: usize| named(&schedules[i]).map(|(name, at)| (name, at - now)).filter(|(_, ahead)| *ahead >= -LATE);
    let fire = (0..schedules.len()).filter(is_rare).find_map(coming);
    let task = ahead.and_then(|ahead| ahead.tasks.iter().find(|task| task.run_at >= now));
    let task = task.map(|task| (format!("a task of {}", task.topic), task.run_at - now));
    let next = fire.into_iter().chain(task).min_by_key(|(_, ahead)| *ahead);
    Facts {
        is_next_among_the_rare: next.is_some() && ahead.is_some_and(|ahead| !ahead.often.is_empty()),
        schedules: counts.map_or(schedules.len() as u64, |counts| counts.schedules),
        is_known: ahead.is_some(),
        may_more_be_late: late.len() == SCHEDULES as usize,
        late,
        next: next.or_else(|| (0..schedules.len()).find_map(coming)),
        nodes: nodes.len(),
        silent: nodes.iter().filter(|node| node.is_silent).count(),
        has_leader: nodes.iter().any(|node| node.leads),
        is_paused: visitor.api.state.is_paused(),
        redis,
        due: counts.map_or(0, |counts| counts.due.iter().map(|depth| depth.tasks).sum()),
        failed: minutes.map_or(0, |minutes| minutes.iter().map(|minute| minute.failed).sum()),
        waiting: None,
        overdue: None,
    }
}

/// The topics whose tasks should have begun, those that wait longest first. What somebody paused is meant to wait, and is named
/// with that as the reason as soon as it is due.
fn overdue(loads: &[Load], topics: &[TopicDefinition], now: DateTime<Utc>) -> Vec<Overdue> {
    let late = |load: &Load| {
        let by = now - load.due_since?;
        let definition = definition_of(load, topics);
        let is_pulled = definition.is_some_and(|definition| definition.route == Route::Pull);
        let cause = match definition.is_some_and(|definition| definition.paused) {
            true => Cause::Paused,
            false if is_pulled && load.running == 0 => Cause::Unclaimed,
            false => Cause::Late,
        };
        let is_told = cause == Cause::Paused || by > OVERDUE;
        is_told.then(|| Overdue { topic: load.topic.clone(), due: load.due, by, cause })
    };
    let mut late: Vec<_> = loads.iter().filter_map(late).collect();
    late.sort_by_key(|overdue| std::cmp::Reverse(overdue.by));
    late
}

/// How many tasks are due whose topic nobody paused.
fn waiting(loads: &[Load], topics: &[TopicDefinition]) -> u64 {
    let is_held = |load: &&Load| definition_of(load, topics).is_some_and(|definition| definition.paused);
    loads.iter().filter(|load| !is_held(load)).map(|load| load.due).sum()
}

fn definition_of<'a>(load: &Load, topics: &'a [TopicDefinition]) -> Option<&'a TopicDefinition> {
    TopicDefinition::for_topic(topics, &Topic::from_stored(load.topic.as_str()))
}

fn headline(facts: &Facts, counts: Option<&Counts>, now: DateTime<Utc>) -> Markup {
    let sentences = health::sentences(facts);
    let (first, more) = sentences.split_first().map_or((None, &[][..]), |(first, more)| (Some(first), more));
    html! {
        div.health.sheet {
            @if let Some(first) = first {
                h1 class={ "headline " (first.tone.class()) } { (first.text) }
                @if let Some((cause, topics)) = &first.about { p.see { "See the tasks of " (waiting_tasks(*cause, topics, now)) } }
            }
            @if !more.is_empty() {
                ul.more {
                    @for sentence in more {
                        li class=(sentence.tone.class()) {
                            (sentence.text)
                            @if let Some((cause, topics)) = &sentence.about { " See " (waiting_tasks(*cause, topics, now)) }
                        }
                    }
                }
            }
            @if let Some(counts) = counts {
                dl.tiles {
                    div { dt { a href="/schedules?enabled=true" { "Schedules" } } dd { (number(counts.schedules)) } }
                    div { dt { a href="/tasks?status=running" { "Running" } } dd { (number(counts.running)) } }
                    div { dt { a href={ "/tasks?status=pending&to=" (encoded(&instant(now))) } { "Due" } } dd { (number(facts.due)) } }
                    div { dt { a href="/outbox" { "Outbox" } } dd { (number(counts.outbox)) } }
                    div { dt { a href=(failures::OF_LAST_HOUR) { "Failed (1 h)" } } dd { (number(facts.failed)) } }
                    div { dt { a href="/nodes" { "Nodes" } } dd { (facts.nodes) } }
                }
            } @else {
                p.hint { "The database is being counted." }
            }
        }
    }
}

/// Leads to the tasks that a sentence is about, and to where what was paused can be resumed.
fn waiting_tasks(cause: Cause, topics: &[String], now: DateTime<Utc>) -> Markup {
    let until = instant(if cause == Cause::Paused { now } else { now - OVERDUE });
    html! {
        @for (i, topic) in topics.iter().enumerate() {
            @if i > 0 { ", " }
            a href={ "/tasks?status=pending&topic=" (encoded(topic)) "&to=" (encoded(&until)) } { (topic) }
        }
        "."
        @if cause == Cause::Paused { " Resume under " a href="/topics" { "Topics" } "." }
    }
}

/// An instant as filters take it.
pub(super) fn instant(at: DateTime<Utc>) -> String {
    at.to_rfc3339_opts(SecondsFormat::Millis, true)
}

fn throughput(minutes: Option<&Vec<EndedMinute>>) -> Markup {
    let is_known = minutes.is_some();
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
            @if is_known { span.hint { (number(ended)) " in the last hour" @if failed > 0 { ", " span.bad { (number(failed)) " failed" } } } }
        }
        @if !is_known {
            (empty("What ended in the last hour is being looked at."))
        } @else if ended == 0 {
            (empty("No task ended in the last hour. Each minute becomes a column here."))
        } @else {
            (chart::columns(&about, &columns, Tone::Good))
            div.axis { span { "60 min ago" } span { "peak " (number(most)) "/min" } span { "now" } }
        }
    }
}

fn lag(minutes: Option<&Vec<EndedMinute>>) -> Markup {
    let is_known = minutes.is_some();
    let minutes: &[EndedMinute] = minutes.map_or(&[], |minutes| minutes);
    let lags: Vec<_> = minutes.iter().map(|minute| minute.lag.map(|lag| lag.as_seconds_f64())).collect();
    let most = minutes.iter().filter_map(|minute| minute.lag).max();
    let last = minutes.iter().rev().find_map(|minute| minute.lag);
    html! {
        div.head {
            h2 #lag-title { "Start lag" }
            @if let Some(last) = last { span.hint { "lately " (span(last)) " after the time asked for, on average" } }
        }
        @match most {
            None if !is_known => { (empty("How late tasks began in the last hour is being looked at.")) }
            None => { (empty("Nothing started in the last hour. How late tasks begin is drawn here.")) }
            Some(most) => {
                (chart::line("busy", &format!("How late tasks began in each minute of the last hour: at most {} on average", span(most)), &lags, 600, 72))
                div.axis { span { "60 min ago" } span { "worst minute " (span(most)) " on average" } span { "now" } }
            }
        }
    }
}

fn node_list(nodes: &[KnownNode], now: DateTime<Utc>) -> Markup {
    let rows: Vec<_> = nodes
        .iter()
        .map(|known| {
            let KnownNode { node, about, is_silent, leads } = known;
            let (tone, word) = match (is_silent, about.paused, leads) {
                (true, ..) => (Tone::Bad, "silent"),
                (_, true, _) => (Tone::Late, "paused"),
                (_, _, true) => (Tone::Good, "leads"),
                _ => (Tone::Quiet, "stands by"),
            };
            vec![
                html! { a href="/nodes" { (short(node.id)) } @if let Some(listen) = &about.listen { span.sub { (listen) } } },
                badge(tone, word),
                html! { (ago(node.seen_at, now)) span.sub { @if *is_silent { "was " } "up " (span(known.uptime(now))) } },
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
    use super::*;

    #[test]
    fn minutes_that_were_not_over_are_counted_again_however_long_ago_it_was() {
        let at = |minute: i64| DateTime::UNIX_EPOCH + TimeDelta::minutes(minute);
        let minutes = |range: std::ops::RangeInclusive<i64>| -> Vec<_> {
            range.map(|minute| EndedMinute { at: at(minute), ended: 1, failed: 0, lag: None }).collect()
        };
        for (before, this, expected) in [
            (Vec::new(), 100, None),
            (minutes(41..=100), 100, Some((41, 98))),
            (minutes(41..=100), 101, Some((42, 98))),
            (minutes(41..=100), 103, Some((44, 98))),
            (minutes(41..=100), 157, Some((98, 98))),
            (minutes(41..=100), 158, None),
            (minutes(41..=100), 99, Some((41, 98))),
            (minutes(41..=100), 90, Some((41, 89))),
            (minutes(41..=42), 100, None),
        ] {
            let found = counted(&before, at(this));
            let ends = found.first().zip(found.last()).map(|(first, last)| (first.at, last.at));
            assert_eq!(ends, expected.map(|(first, last)| (at(first), at(last))), "{this}");
        }
    }

    #[test]
    fn tasks_are_overdue_unless_somebody_wants_them_to_wait_which_is_the_reason_at_once() {
        let now: DateTime<Utc> = "2026-11-18T12:00:00Z".parse().unwrap();
        let define = |name: &str, route: Route, paused| TopicDefinition {
            paused,
            ..TopicDefinition::new(name.parse().unwrap(), route)
        };
        let topics = [
            define("held", Route::Event, true),
            define("pulled", Route::Pull, false),
            define("pulled.busy", Route::Pull, false),
        ];
        let load = |topic: &str, seconds: Option<i64>, running| Load {
            topic: topic.into(),
            due: 2,
            due_since: seconds.map(|seconds| now - TimeDelta::seconds(seconds)),
            running,
        };
        let loads = [
            load("new", Some(30), 0),
            load("mail", Some(31), 0),
            load("held", Some(900), 0),
            load("held", Some(1), 0),
            load("pulled", Some(60), 0),
            load("pulled.busy", Some(90), 1),
            load("running", None, 3),
        ];
        let found: Vec<_> =
            overdue(&loads, &topics, now).into_iter().map(|one| (one.topic, one.by.num_seconds(), one.cause)).collect();
        let expected = [
            ("held", 900, Cause::Paused),
            ("pulled.busy", 90, Cause::Late),
            ("pulled", 60, Cause::Unclaimed),
            ("mail", 31, Cause::Late),
            ("held", 1, Cause::Paused),
        ];
        assert_eq!(found, expected.map(|(topic, by, cause)| (topic.to_owned(), by, cause)));
        // All but those that are held, also what is not overdue yet.
        let due: u64 = loads.iter().filter(|load| load.topic != "held").map(|load| load.due).sum();
        assert_eq!(waiting(&loads, &topics), due);
    }
}
