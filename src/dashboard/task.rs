//! `/tasks/{id}`: one task, its attempts, and what can be done with it.

use axum::extract::Path;
use axum::http::Method;
use axum::response::Response;
use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::id::TaskId;
use punctual_domain::store::Retry;
use punctual_domain::task::{AttemptOutcome, AttemptRecord, Task, TaskStatus};
use serde::de::IgnoredAny;
use serde_json::Map;

use super::form::{Form, encoded};
use super::json::{SHOWN, SHOWN_OF_MANY, error_up_to, json, json_up_to};
use super::layout::Place;
use super::parts::{Tone, act, ago, badge, clock, empty, facts, short, span, status, zone_clock};
use super::visitor::Visitor;
use crate::http::problem::Problem;
use crate::http::tasks::{no_such_task, task_id};

/// How many retries of a task are looked at, and how many are named.
const RETRIES: u32 = 20;
const NAMED: usize = 5;

/// `GET /tasks/{id}`.
pub(crate) async fn show(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let api = &visitor.api;
    let id = task_id(&id)?;
    let name = id.to_string();
    let (found, why, retries, topics) = tokio::join!(
        api.store.task(id),
        api.inspector.why(&name),
        api.store.retries_of(id, RETRIES),
        api.topics.definitions(),
    );
    let found = found?.ok_or_else(|| no_such_task(id))?;
    let (task, attempts, why, retries) = (&found.task, &found.attempts, why?, retries?);
    let now = visitor.now;
    let warnings = api.topics.warnings_of(&topics?, task);
    let whole = format!("/api/v1/tasks/{id}");
    let schedule = match task.fire {
        Some(fire) => api.store.schedule(fire.schedule_id).await?,
        None => None,
    };
    // The present attempt counts as lost until it ends.
    let lost = task.lost.saturating_sub(u32::from(task.status == TaskStatus::Running));
    let body = html! {
        p.trail { a href="/tasks" { "Tasks" } " / " a href={ "/tasks?topic=" (encoded(task.topic.as_str())) } { (task.topic) } " /" }
        section #task data-live {
            h1 { "Task " (short(task.id)) " " (status(task.status)) }
            @if visitor.may_change(&task.topic) { (actions(task, &retries)) }
            @if !retries.is_empty() { (retried(&retries, now)) }
            @for warning in &warnings { p.remark { (warning) } }
            div.sheet {
                (facts(&[
                    ("Topic", html! { (task.topic) }),
                    ("Due", html! { (ago(task.run_at, now)) span.sub { (clock(task.run_at)) } @if let Ok(zone) = api.zones.zone(&task.timezone) { span.sub { (zone_clock(task.run_at, &zone)) } } }),
                    ("Attempt", html! { (task.attempt) " of " (task.retry.attempts) @if lost > 0 { ", " (lost) " lost" } @if task.snoozes > 0 { ", " (task.snoozes) " snoozed" } }),
                    ("Took", html! { (took(task)) }),
                    ("Made", html! { (ago(task.created_at, now)) span.sub { (clock(task.created_at)) } }),
                    ("Ended", html! { @if let Some(at) = task.completed_at { (ago(at, now)) span.sub { (clock(at)) } } @else { "not yet" } }),
                    ("Schedule", html! {
                        @match (&task.fire, &schedule) {
                            (Some(fire), Some(schedule)) => { a href={ "/schedules/" (fire.schedule_id) } { (schedule.definition.name) } span.sub { "instant " (clock(fire.scheduled_at)) } }
                            (Some(fire), None) => { "deleted since" span.sub { "instant " (clock(fire.scheduled_at)) } }
                            (None, _) => { "none: a caller made it" }
                        }
                    }),
                    ("Priority", html! { (task.priority) }),
                    ("Time limit", html! { (span(TimeDelta::seconds(task.timeout_seconds.into()))) " per attempt" }),
                    ("Id", html! { code { (task.id) } }),
                ]))
                (more(task))
            }
            @if task.status == TaskStatus::Failed {
                @if let Some(error) = &task.error {
                    div.sheet.gap { h2 { "Why it failed" } (error_text(SHOWN, error, &whole)) }
                }
            }
        }
        section #why.sheet data-live aria-labelledby="why-title" {
            h2 #why-title { @if task.status.has_ended() { "What became of it" } @else if task.status == TaskStatus::Running { "What it is doing" } @else { "Why is this not running?" } }
            ul.reasons { @for reason in &why.reasons { li { (reason.message) } } }
        }
        section #attempts.sheet data-live aria-labelledby="attempts-title" {
            h2 #attempts-title { "Attempts" }
            @if attempts.is_empty() { (empty("It was not attempted yet. Each attempt is drawn here, from its begin to its end.")) }
            @else { (timeline(attempts, now, &whole)) }
        }
        div.grid {
            section.sheet aria-labelledby="payload-title" { h2 #payload-title { "Payload" } (json(task.payload.as_str(), &whole)) }
            section #result.sheet data-live aria-labelledby="result-title" {
                h2 #result-title { "Result" }
                @match &task.result {
                    Some(result) => { (json(result.as_str(), &whole)) }
                    None => { (empty("It has no result. What a handler answers stands here.")) }
                }
            }
        }
    };
    Ok(visitor.page(Place::Tasks, &format!("Task {}", task.id), &body))
}

/// Says that others were made in its place, and leads there.
fn retried(retries: &[Retry], now: DateTime<Utc>) -> Markup {
    let times = match retries.len() {
        1 => "once".to_owned(),
        2 => "twice".to_owned(),
        most if most == RETRIES as usize => format!("{most} times or more"),
        times => format!("{times} times"),
    };
    html! {
        div.notice.waiting {
            "Retried " (times) ": "
            @for (i, retry) in retries.iter().take(NAMED).enumerate() {
                @if i > 0 { ", " }
                a href={ "/tasks/" (retry.id) } { (short(retry.id)) } " " (status(retry.status)) " " (ago(retry.created_at, now))
            }
            @if retries.len() > NAMED { ", and older ones" }
            "."
        }
    }
}

fn actions(task: &Task, retries: &[Retry]) -> Markup {
    let path = format!("/tasks/{}", task.id);
    html! {
        div.actions.gap {
            @match task.status {
                TaskStatus::Failed => {
                    form method="post" action={ (path) "/retry" } {
                        // A form that is sent twice makes one task, and so does one that has not seen the other's.
                        input type="hidden" name="after" value=(newest(retries));
                        @if retries.is_empty() { button.primary type="submit" { "Retry" } }
                        @else { button type="submit" { "Retry again" } }
                    }
                }
                TaskStatus::Pending | TaskStatus::Running => {
                    (act(&format!("{path}/cancel"), "Cancel", "danger"))
                    form.inline method="post" action={ (path) "/reschedule" } {
                        label for="runAt" { "Run at (" (task.timezone) ")" }
                        input #runAt type="datetime-local" name="runAt" required;
                        button type="submit" { "Reschedule" }
                    }
                }
                TaskStatus::Completed | TaskStatus::Cancelled => {}
            }
        }
    }
}

/// What most tasks do not have.
fn more(task: &Task) -> Markup {
    let link = |id: TaskId| html! { a href={ "/tasks/" (id) } { (short(id)) } };
    let mut more: Vec<(&str, Markup)> = Vec::new();
    more.extend(task.retry_of.map(|id| ("Retry of", link(id))));
    more.extend(task.rescheduled_from.map(|id| ("Instead of", link(id))));
    more.extend(task.client_request_id.as_ref().map(|id| ("Client request", html! { code { (id) } })));
    more.extend(task.dedupe_key.as_ref().map(|key| ("Dedupe key", html! { code { (key) } })));
    more.extend(task.serial_key.as_ref().map(|key| ("Serial key", html! { code { (key) } })));
    more.extend(task.lease.as_ref().map(|lease| {
        ("Lease", html! { "node " (short(lease.owner)) @if let Some(at) = lease.expires_at { span.sub { "until " (clock(at)) } } })
    }));
    html! {
        @if !more.is_empty() { div.gap { (facts(&more)) } }
        @if !task.metadata.is_empty() {
            h3.gap { "Metadata" }
            dl.facts { @for (name, value) in &task.metadata { div { dt { (name) } dd { (value) } } } }
        }
    }
}

fn took(task: &Task) -> String {
    match (task.started_at, task.completed_at) {
        (Some(started_at), Some(completed_at)) => span((completed_at - started_at).max(TimeDelta::zero())),
        _ => "–".to_owned(),
    }
}

/// Attempts one below the other, each where it lies between the first begin and the last end.
fn timeline(attempts: &[AttemptRecord], now: DateTime<Utc>, whole: &str) -> Markup {
    let begin = attempts.iter().map(|attempt| attempt.started_at).min().unwrap_or(now);
    let end = attempts.iter().map(|attempt| attempt.ended_at.unwrap_or(now)).max().unwrap_or(now);
    let length = (end - begin).as_seconds_f64().max(0.001);
    let at = |instant: DateTime<Utc>| ((instant - begin).as_seconds_f64() / length * 1000.0).clamp(0.0, 1000.0);
    html! {
        ol.attempts {
            @for attempt in attempts {
                @let tone = outcome_tone(attempt.outcome);
                @let (from, to) = (at(attempt.started_at), at(attempt.ended_at.unwrap_or(now)));
                li {
                    div.head {
                        span {
                            strong { "Attempt " (attempt.number) } " "
                            (badge(tone, attempt.outcome.map_or(TaskStatus::Running.as_str(), AttemptOutcome::as_str)))
                        }
                        span.hint {
                            (clock(attempt.started_at)) " · "
                            @match attempt.ended_at { Some(ended_at) => { (span(ended_at - attempt.started_at)) } None => { "since " (ago(attempt.started_at, now)) } }
                            " · node " (short(attempt.node_id)) " · epoch " (attempt.epoch.0)
                        }
                    }
                    svg.track viewBox="0 0 1000 6" preserveAspectRatio="none" aria-hidden="true" {
                        rect.rail x="0" y="0" width="1000" height="6" rx="3" {}
                        rect class=(tone.class()) x=(format!("{:.1}", from.min(992.0))) y="0" width=(format!("{:.1}", (to - from).max(8.0))) height="6" rx="3" {}
                    }
                    @if let Some(error) = &attempt.error { (error_text(SHOWN_OF_MANY, error, whole)) }
                }
            }
        }
    }
}

fn outcome_tone(outcome: Option<AttemptOutcome>) -> Tone {
    match outcome {
        None => Tone::Busy,
        Some(AttemptOutcome::Completed) => Tone::Good,
        Some(AttemptOutcome::Failed | AttemptOutcome::TimedOut | AttemptOutcome::Panicked) => Tone::Bad,
        Some(AttemptOutcome::Lost) => Tone::Late,
        Some(AttemptOutcome::Snoozed | AttemptOutcome::HandedBack) => Tone::Waiting,
        Some(AttemptOutcome::Cancelled) => Tone::Quiet,
    }
}

/// An error, laid out if it is JSON; no more of it than so many bytes.
fn error_text(most: usize, error: &str, whole: &str) -> Markup {
    let is_json = error.trim_start().starts_with(['{', '[']) && serde_json::from_str::<IgnoredAny>(error).is_ok();
    match is_json {
        true => json_up_to(most, error, whole),
        false => error_up_to(most, error, whole),
    }
}

/// The retry that was made last.
fn newest(retries: &[Retry]) -> String {
    retries.first().map(|retry| retry.id.to_string()).unwrap_or_default()
}

/// `POST /tasks/{id}/retry`: unless somebody else was faster.
pub(crate) async fn retry(visitor: Visitor, Path(id): Path<String>, form: Form) -> Result<Response, Problem> {
    let newest = newest(&visitor.api.store.retries_of(task_id(&id)?, 1).await?);
    if !newest.is_empty() && form.raw("after") != Some(&newest) {
        let said = "It was retried already: this is the task that was made then. Nothing was made now.";
        return Ok(visitor.not_found(&format!("/tasks/{newest}"), said));
    }
    // Whoever saw the same retries means the same one, from however many pages at the same moment.
    let key = format!("dashboard retry {id} after {newest}");
    match visitor.act_once(key, Method::POST, &["tasks", &id, "retry"]).await {
        Ok(task) => {
            Ok(visitor.done(&path_of(&task), "Made anew: this is another task, and the failed one stays as it is."))
        }
        Err(problem) => visitor.refused(&format!("/tasks/{id}"), problem),
    }
}

/// `POST /tasks/{id}/cancel`.
pub(crate) async fn cancel(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let back = format!("/tasks/{id}");
    match visitor.act(Method::POST, &["tasks", &id, "cancel"], None).await {
        Ok(task) if task["status"] == "cancelled" => Ok(visitor.done(&back, "The task is cancelled.")),
        Ok(_) => Ok(visitor.done(&back, "The task had ended before.")),
        Err(problem) => visitor.refused(&back, problem),
    }
}

/// `POST /tasks/{id}/reschedule`.
pub(crate) async fn reschedule(visitor: Visitor, Path(id): Path<String>, form: Form) -> Result<Response, Problem> {
    let (back, task_id) = (format!("/tasks/{id}"), task_id(&id)?);
    let found = visitor.api.store.task(task_id).await?.ok_or_else(|| no_such_task(task_id))?;
    let zone = found.task.timezone;
    let moved = match visitor.instant("runAt", form.text("runAt").unwrap_or_default(), &zone) {
        Ok(run_at) => {
            let body = Map::from_iter([("runAt".to_owned(), run_at.into()), ("timezone".to_owned(), zone.into())]);
            visitor.act(Method::POST, &["tasks", &id, "reschedule"], Some(&body.into())).await
        }
        Err(problem) => Err(problem),
    };
    match moved {
        Ok(task) => Ok(visitor.done(&path_of(&task), "Rescheduled: this task takes the place of the one before.")),
        Err(problem) => visitor.refused(&back, problem),
    }
}

fn path_of(task: &serde_json::Value) -> String {
    format!("/tasks/{}", task["id"].as_str().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_json_is_laid_out_as_json() {
        for (error, expected) in [
            (r#"{"code": 7}"#, "{\n  &quot;code&quot;: 7\n}"),
            ("[E0382] borrow of moved value: a, b", "[E0382] borrow of moved value: a, b"),
            ("{curly, but no JSON}", "{curly, but no JSON}"),
            (r#"{"code": 7} and more"#, "{&quot;code&quot;: 7} and more"),
            ("7", "7"),
        ] {
            let page = error_text(SHOWN, error, "/whole").into_string();
            assert!(page.contains(&format!(">{expected}</pre>")), "{page}");
        }
    }
}
