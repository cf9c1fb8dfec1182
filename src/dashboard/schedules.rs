//! `/schedules`: all of them, how they went lately, and when they fire next.

use std::collections::HashMap;

use axum::response::Response;
use chrono::{DateTime, Utc};
use maud::{Markup, html};
use punctual_domain::fire::{Fire, FireStatus};
use punctual_domain::id::ScheduleId;
use punctual_domain::key::Role;
use punctual_domain::schedule::{Rhythm, Schedule};
use punctual_domain::store::Page;
use punctual_domain::task::TaskStatus;

use super::chart;
use super::form::Form;
use super::layout::Place;
use super::parts::{Tone, act, ago, badge, clock, empty, pager, span, table, with, zone_clock};
use super::visitor::Visitor;
use crate::http::Api;
use crate::http::cursor;
use crate::http::list_page::ListPage;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

/// How many schedules a page has.
const LIMIT: u32 = 25;
/// How many of its fires a strip shows.
const STRIP: u32 = 30;

/// `GET /schedules`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let api = &visitor.api;
    let mut parameters = Parameters::of(&visitor.uri)?;
    let (filter, page): (_, Page<ScheduleId>) = (parameters.schedule_filter(), parameters.page());
    parameters.finish()?;
    let page = Page { limit: LIMIT, ..page };
    let list = ListPage::read(&api.page_memory, page, |page| api.store.schedules(&filter, page)).await?;
    let ids: Vec<_> = list.items.iter().map(|schedule| schedule.id).collect();
    let fires = by_schedule(api.store.recent_fires(&ids, STRIP).await?);
    let next_cursor = list.next.map(|id| cursor::after(id.0));
    let asked = Form::of(visitor.uri.query().unwrap_or_default()).unwrap_or_default();
    let first = with(&visitor.uri, "cursor", None).parse().unwrap_or_else(|_| visitor.uri.clone());
    let is_filtered = ["name", "topic", "enabled", "ownerId"].iter().any(|name| asked.text(name).is_some());
    let body = html! {
        div.head {
            h1 { "Schedules" }
            div.actions {
                a.button href="/schedules/calendar" { "Calendar" }
                @if visitor.may(Role::Operate) { a.button.primary href="/schedules/new" { "New schedule" } }
            }
        }
        div.head {
            nav.tabs aria-label="Which schedules" {
                @for (word, value) in [("All", None), ("Enabled", Some("true")), ("Paused", Some("false"))] {
                    a href=(with(&first, "enabled", value)) aria-current=[(asked.text("enabled") == value).then_some("true")] { (word) }
                }
            }
            form.filters method="get" action="/schedules" role="search" {
                @if let Some(enabled) = asked.text("enabled") { input type="hidden" name="enabled" value=(enabled); }
                label { "Name" input name="name" value=[asked.text("name")] placeholder="the whole name"; }
                label { "Topic" input name="topic" value=[asked.text("topic")] placeholder="the whole topic"; }
                button type="submit" { "Filter" }
                @if is_filtered { a.button href="/schedules" { "Clear" } }
            }
        }
        section #schedules.sheet data-live aria-label="Schedules" {
            @if list.items.is_empty() {
                @if is_filtered { (empty("No schedule matches the filter.")) }
                @else { (empty("There are no schedules yet. Each one is listed here with its last executions and its next fire.")) }
            } @else {
                (rows(&visitor, &list.items, &fires))
            }
            (pager(&visitor.uri, next_cursor.as_deref()))
        }
    };
    Ok(visitor.page(Place::Schedules, "Schedules", &body))
}

fn by_schedule(fires: Vec<Fire>) -> HashMap<ScheduleId, Vec<Fire>> {
    let mut by_schedule: HashMap<_, Vec<Fire>> = HashMap::new();
    for fire in fires {
        by_schedule.entry(fire.schedule_id).or_default().push(fire);
    }
    by_schedule
}

fn rows(visitor: &Visitor, schedules: &[Schedule], fires: &HashMap<ScheduleId, Vec<Fire>>) -> Markup {
    let rows: Vec<_> = schedules
        .iter()
        .map(|schedule| {
            let fires: &[Fire] = fires.get(&schedule.id).map_or(&[], |fires| fires);
            let definition = &schedule.definition;
            vec![
                html! { a href={ "/schedules/" (schedule.id) } { (definition.name) } span.sub { (definition.topic) } },
                html! { span.nowrap { (rhythm(&definition.rhythm)) } span.sub.nowrap { (definition.timezone) } },
                next_fire(&visitor.api, schedule, visitor.now),
                strip(fires),
                durations(fires),
                html! { @if visitor.may_change_schedule(schedule) { (quick(schedule)) } @else { (state(schedule)) } },
            ]
        })
        .collect();
    table("Schedules", &["Schedule", "When", "Next fire", "Last executions", "Duration", ""], &rows)
}

/// What can be done with one click.
fn quick(schedule: &Schedule) -> Markup {
    let path = format!("/schedules/{}", schedule.id);
    html! {
        div.actions {
            @if schedule.enabled { (act(&format!("{path}/pause"), "Pause", "small")) }
            @else { (act(&format!("{path}/resume"), "Resume", "small")) }
            (act(&format!("{path}/trigger"), "Trigger", "small"))
        }
    }
}

/// When it fires, as it was written.
pub(crate) fn rhythm(rhythm: &Rhythm) -> Markup {
    html! {
        @match rhythm {
            Rhythm::Cron(expression) => { code { (expression) } }
            Rhythm::Every(ms) => { "every " (every(*ms)) }
        }
    }
}

/// An interval in its largest whole units.
pub(crate) fn every(ms: u64) -> String {
    let mut left = ms;
    let mut said = String::new();
    for (unit, name) in [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s"), (1, "ms")] {
        if left >= unit {
            said.push_str(&format!("{}{name}", left / unit));
            left %= unit;
        }
    }
    said
}

/// Whether it is on.
pub(crate) fn state(schedule: &Schedule) -> Markup {
    match (schedule.enabled, schedule.next_fire_at) {
        (true, Some(_)) => badge(Tone::Good, "enabled"),
        (true, None) => badge(Tone::Quiet, "done"),
        (false, _) => badge(Tone::Late, "paused"),
    }
}

/// When it fires next: how soon, by the reader's clock, and by its own.
pub(crate) fn next_fire(api: &Api, schedule: &Schedule, now: DateTime<Utc>) -> Markup {
    html! {
        @match (schedule.enabled, schedule.next_fire_at) {
            (true, Some(at)) => {
                @if at < now { (badge(Tone::Late, "due")) " " }
                (ago(at, now)) " · " (clock(at))
                @if let Ok(zone) = api.zones.zone(&schedule.definition.timezone) { span.sub { (zone_clock(at, &zone)) } }
            }
            (true, None) => { span.dim { "fires no more" } }
            (false, _) => {
                (badge(Tone::Late, "paused"))
                @if let Some(until) = schedule.paused_until { " until " (clock(until)) }
                @if let Some(note) = &schedule.pause_note { span.sub { (note) } }
            }
        }
    }
}

/// The last fires as coloured cells, the newest at the right.
pub(crate) fn strip(fires: &[Fire]) -> Markup {
    let count = |wanted: &dyn Fn(Option<FireStatus>) -> bool| fires.iter().filter(|fire| wanted(fire.status())).count();
    let completed = count(&|status| status == Some(FireStatus::Task(TaskStatus::Completed)));
    let failed = count(&|status| status == Some(FireStatus::Task(TaskStatus::Failed)));
    let skipped = count(&|status| status == Some(FireStatus::Skipped));
    let about = format!("The last {}: {completed} completed, {failed} failed, {skipped} skipped", fires.len());
    html! {
        @if fires.is_empty() { span.dim { "none yet" } }
        @else {
            span.strip role="img" aria-label=(about) {
                @for fire in fires.iter().rev() { i class=(tone(fire).class()) title=(told(fire)) {} }
            }
        }
    }
}

fn tone(fire: &Fire) -> Tone {
    fire.status().map_or(Tone::Quiet, Tone::of_fire)
}

/// One fire in a line.
fn told(fire: &Fire) -> String {
    let at = fire.scheduled_at.format("%Y-%m-%d %H:%M:%S UTC");
    let status = fire.status().map_or("pruned", FireStatus::as_str);
    match (fire.reason, took(fire), fire.task.as_ref().and_then(|task| task.error.as_deref())) {
        (Some(reason), _, _) if fire.count > 1 => {
            format!("{at} {status}: {}, {} instants", reason.as_str(), fire.count)
        }
        (Some(reason), _, _) => format!("{at} {status}: {}", reason.as_str()),
        (None, Some(took), None) => format!("{at} {status}, {}", span(took)),
        (None, _, Some(error)) => format!("{at} {status}: {}", error.lines().next().unwrap_or_default()),
        (None, None, None) => format!("{at} {status}"),
    }
}

/// How long its task took, once it has ended.
pub(crate) fn took(fire: &Fire) -> Option<chrono::TimeDelta> {
    let task = fire.task.as_ref()?;
    Some(task.completed_at? - task.started_at?)
}

/// How long the last fires took, as a line.
fn durations(fires: &[Fire]) -> Markup {
    let values: Vec<_> = fires.iter().rev().map(|fire| took(fire).map(|took| took.as_seconds_f64().max(0.0))).collect();
    let last = fires.iter().find_map(took);
    html! {
        @match last {
            None => { span.dim { "–" } }
            Some(last) => {
                @let most = fires.iter().filter_map(took).max().unwrap_or(last);
                (chart::line("spark", &format!("Durations: last {}, longest {}", span(last), span(most)), &values, 90, 22))
                span.sub { (span(last)) }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn intervals_are_written_as_they_are_entered() {
        for (ms, expected) in
            [(1_000, "1s"), (900_000, "15m"), (5_400_000, "1h30m"), (86_400_000, "1d"), (1_500, "1s500ms")]
        {
            assert_eq!(every(ms), expected);
            assert_eq!(crate::cli::when::duration(expected).unwrap().as_millis(), u128::from(ms));
        }
    }
}
