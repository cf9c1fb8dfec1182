//! `/schedules/{id}`: one schedule, what became of its instants, and what can be done with it.

use axum::extract::Path;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Timelike, Utc};
use maud::{Markup, html};
use punctual_domain::fire::{Fire, FireKind, FireStatus};
use punctual_domain::id::FireId;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{FireFilter, Page};
use punctual_domain::time::{NextFire, Note, ZoneDatabase};

use super::form::encoded;
use super::json::json;
use super::layout::Place;
use super::parts::{Tone, act, ago, badge, clock, empty, facts, pager, span, table};
use super::schedules::{next_fire, rhythm, state, strip, took};
use super::visitor::Visitor;
use crate::http::cursor;
use crate::http::list_page::ListPage;
use crate::http::problem::Problem;
use crate::http::query::Parameters;
use crate::http::schedule_edit::{find, schedule_id};

/// How many executions a page has, how many fires a strip, and how many instants are looked at ahead.
const LIMIT: u32 = 20;
const STRIP: u32 = 30;
const AHEAD: usize = 10;

/// `GET /schedules/{id}`.
pub(crate) async fn show(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let api = &visitor.api;
    let id = schedule_id(&id)?;
    let mut parameters = Parameters::of(&visitor.uri)?;
    let page: Page<FireId> = parameters.page();
    parameters.finish()?;
    let schedule = find(api, id).await?;
    let filter = FireFilter::default();
    let page = Page { limit: LIMIT, ..page };
    let reading = ListPage::read(&api.page_memory, page, |page| api.store.fires(id, &filter, page));
    let (executions, recent, calendars, why) = tokio::join!(
        reading,
        api.store.recent_fires(std::slice::from_ref(&schedule.id), STRIP),
        api.store.calendars(),
        api.inspector.why(&schedule.definition.name),
    );
    let (executions, recent, calendars, why) = (executions?, recent?, calendars?, why?);
    let (next, remarks) = match Outlook::new(&schedule, &calendars, &api.zones) {
        Ok(outlook) => (coming(&schedule, &outlook, visitor.now), outlook.remarks(visitor.now)),
        Err(error) => (Vec::new(), vec![error.to_string()]),
    };
    let name = &schedule.definition.name;
    let next_cursor = executions.next.map(|id| cursor::after(id.0));
    let body = html! {
        p.trail { a href="/schedules" { "Schedules" } " /" }
        section #schedule data-live {
            div.head { h1 { (name) " " (state(&schedule)) } }
            @if let Some(description) = &schedule.definition.description { p.dim.prose { (description) } }
            @if !schedule.enabled {
                p.notice.waiting {
                    "Paused"
                    @if let Some(until) = schedule.paused_until { " until " (clock(until)) }
                    @if let Some(note) = &schedule.pause_note { ": " (note) } @else { "." }
                }
            }
            div.sheet {
                (facts(&[
                    ("When", html! { (rhythm(&schedule.definition.rhythm)) " " span.zone { (schedule.definition.timezone) } }),
                    ("Next fire", next_fire(api, &schedule, visitor.now)),
                    ("Last fire", html! { @if let Some(at) = schedule.last_fired_at { (ago(at, visitor.now)) span.sub { (clock(at)) } } @else { "never" } }),
                    ("Topic", html! { a href={ "/tasks?topic=" (encoded(&schedule.definition.topic)) } { (schedule.definition.topic) } }),
                    ("Last executions", strip(&recent)),
                    ("Fired so far", html! { (schedule.fires_made) @if let Some(most) = schedule.definition.max_fires { " of " (most) } }),
                ]))
            }
        }
        @if visitor.may_change_schedule(&schedule) { (actions(&schedule, &api.zones)) }
        div.grid {
            section #ahead.sheet data-live aria-labelledby="ahead-title" { (upcoming(&schedule, &next, &remarks, visitor.now)) }
            section #why.sheet data-live aria-labelledby="why-title" {
                h2 #why-title { "Why it fires, or does not" }
                ul.reasons { @for reason in &why.reasons { li { (reason.message) } } }
            }
        }
        section #executions.sheet data-live aria-labelledby="executions-title" {
            div.head { h2 #executions-title { "Executions" } a href={ "/tasks?scheduleId=" (schedule.id) } { "Its tasks" } }
            @if executions.items.is_empty() { (empty("It has not fired yet. Each instant is listed here with what became of it.")) }
            @else { (execution_rows(&executions.items)) }
            (pager(&visitor.uri, next_cursor.as_deref()))
        }
        (definition(&schedule))
    };
    Ok(visitor.page(Place::Schedules, name, &body))
}

fn actions(schedule: &Schedule, zones: &ZoneDatabase) -> Markup {
    let path = format!("/schedules/{}", schedule.id);
    let zone = &schedule.definition.timezone;
    html! {
        section.actions aria-label="What can be done" {
            (act(&format!("{path}/trigger"), "Trigger now", "primary"))
            @if !schedule.enabled { (act(&format!("{path}/resume"), "Resume", "")) }
            a.button href={ (path) "/edit" } { "Edit" }
            a.button href={ (path) "/backfill" } { "Backfill…" }
            a.button.danger href={ (path) "/delete" } { "Delete…" }
        }
        form.sheet.filters method="post" action={ (path) "/pause" } aria-label="Pause" {
            @if !schedule.enabled { input type="hidden" name="version" value=(schedule.version); }
            label { "Note" input name="note" maxlength="1000" placeholder="why, for whoever comes next" value=[&schedule.pause_note]; }
            label { "Until (in " (zone) ")" input type="datetime-local" name="until" value=[pause_end(schedule, zones)]; }
            button type="submit" { @if schedule.enabled { "Pause" } @else { "Change the pause" } }
        }
    }
}

/// When its pause ends, by the clocks of its zone, as a browser has it in a form.
pub(super) fn pause_end(schedule: &Schedule, zones: &ZoneDatabase) -> Option<String> {
    let until = schedule.paused_until?;
    let zone = zones.zone(&schedule.definition.timezone).ok()?;
    let local = zone.local(until);
    let format = if local.second() == 0 { "%Y-%m-%dT%H:%M" } else { "%Y-%m-%dT%H:%M:%S" };
    Some(local.format(format).to_string())
}

/// What fires next: of a paused one what does once its pause ends, or the first instant were it resumed now.
fn coming(schedule: &Schedule, outlook: &Outlook<'_>, now: DateTime<Utc>) -> Vec<NextFire> {
    match (schedule.enabled, schedule.paused_until) {
        (true, _) => outlook.next(now, AHEAD),
        (false, Some(until)) => outlook.next(until.max(now), AHEAD),
        (false, None) => outlook.next(now, 1),
    }
}

fn upcoming(schedule: &Schedule, next: &[NextFire], remarks: &[String], now: DateTime<Utc>) -> Markup {
    let zone = &schedule.definition.timezone;
    html! {
        h2 #ahead-title { "Next fires" }
        @match (schedule.enabled, schedule.paused_until, next.first()) {
            (true, ..) => { (fires_ahead(next, zone, now)) }
            (false, Some(until), Some(_)) => {
                p { "It is paused until " (clock(until)) ". What fires after that, unless it is resumed before:" }
                (fires_ahead(next, zone, now))
            }
            (false, None, Some(first)) => {
                p { "It is paused, and fires nothing until somebody resumes it. Resumed now, it would fire first at:" }
                p { (first.local.format("%a %d %b %Y %H:%M:%S")) " " span.zone { (zone) } " · " (clock(first.at)) }
            }
            (false, _, None) => { (empty("It is paused, and no fire lies ahead.")) }
        }
        @for remark in remarks { p.remark { (remark) } }
    }
}

/// Coming fires, with what clock changes do to them.
pub(crate) fn fires_ahead(next: &[NextFire], zone: &str, now: DateTime<Utc>) -> Markup {
    let rows: Vec<_> = next
        .iter()
        .map(|fire| {
            vec![
                html! {
                    (fire.local.format("%a %d %b %Y %H:%M:%S"))
                    @match fire.note {
                        Some(Note::Gap) => { " " (badge(Tone::Late, "gap: clocks skip the time asked for")) }
                        Some(Note::Fold) => { " " (badge(Tone::Late, "fold: clocks show this time twice")) }
                        None => {}
                    }
                },
                clock(fire.at),
                ago(fire.at, now),
            ]
        })
        .collect();
    html! {
        @if rows.is_empty() { (empty("No fire lies ahead.")) }
        @else {
            p.hint { "Its own time is that of " (zone) "." }
            (table("Next fires", &["Its own time", "Your time", "In"], &rows))
        }
    }
}

fn execution_rows(fires: &[Fire]) -> Markup {
    let rows: Vec<_> = fires
        .iter()
        .map(|fire| {
            let status = fire.status();
            let tone = status.map_or(Tone::Quiet, Tone::of_fire);
            let error = fire.task.as_ref().and_then(|task| task.error.as_deref());
            vec![
                html! {
                    (clock(fire.scheduled_at))
                    @if fire.count > 1 { span.sub { "and " (fire.count - 1) " more" @if let Some(until) = fire.until { ", until " (clock(until)) } } }
                    @if fire.kind != FireKind::Schedule { span.sub { (fire.kind.as_str()) } }
                },
                html! {
                    (badge(tone, status.map_or("pruned", FireStatus::as_str)))
                    @if let Some(reason) = fire.reason { span.sub { (reason.as_str()) } }
                },
                html! { @if fire.reason.is_none() && fire.kind == FireKind::Schedule { (span(fire.fired_at - fire.scheduled_at)) } @else { "–" } },
                html! { @if let Some(took) = took(fire) { (span(took)) } @else { "–" } },
                html! {
                    @match &fire.task {
                        Some(task) => {
                            a href={ "/tasks/" (task.id) } { "task" } @if task.attempt > 1 { " · " (task.attempt) " attempts" }
                            @if let Some(error) = error { span.sub.bad { (error.chars().take(200).collect::<String>()) } }
                        }
                        None => { span.dim { "no task" } }
                    }
                },
            ]
        })
        .collect();
    table("Executions", &["Instant", "Status", "Lag", "Took", "Task"], &rows)
}

fn definition(schedule: &Schedule) -> Markup {
    let definition = &schedule.definition;
    html! {
        section.sheet aria-labelledby="definition-title" {
            h2 #definition-title { "Definition" }
            (facts(&[
                ("Overlap", html! { (word(definition.overlap_policy)) }),
                ("Missed instants", html! { (word(definition.misfire_policy)) ", within " (span(TimeDelta::seconds(definition.misfire_window_seconds.into()))) }),
                ("Attempts", html! { @match definition.max_retries { Some(most) => { (most.max(1)) } None => { "as the topic says" } } }),
                ("Time limit", html! { @match definition.timeout_seconds { Some(seconds) => { (span(TimeDelta::seconds(seconds.into()))) } None => { "as the topic says" } } }),
                ("Priority", html! { (definition.priority) }),
                ("Jitter", html! { (definition.jitter_seconds) " s" }),
                ("Starts", html! { @if let Some(at) = definition.start_at { (clock(at)) } @else { "at once" } }),
                ("Ends", html! { @if let Some(at) = definition.end_at { (clock(at)) } @else { "never" } }),
                ("Calendars left out", html! { @if definition.exclude_calendars.is_empty() { "none" } @else { (definition.exclude_calendars.join(", ")) } }),
                ("Id", html! { code { (schedule.id) } }),
                ("Version", html! { (schedule.version) ", edited " (clock(schedule.updated_at)) }),
                ("Made", html! { (clock(schedule.created_at)) @if let Some(by) = &definition.created_by { " by " (by) } }),
            ]))
            h3.gap { "Payload" }
            (json(definition.payload.as_str(), &format!("/api/v1/schedules/{}", schedule.id)))
            @if !definition.metadata.is_empty() {
                h3.gap { "Metadata" }
                dl.facts { @for (name, value) in &definition.metadata { div { dt { (name) } dd { (value) } } } }
            }
        }
    }
}

/// The word that the API has for a policy.
pub(crate) fn word(policy: impl serde::Serialize) -> String {
    serde_json::to_value(policy).ok().and_then(|word| word.as_str().map(str::to_owned)).unwrap_or_default()
}
