//! `/schedules/{id}/…`: what is done with a schedule. Each calls the API's route of the same name.

use axum::extract::Path;
use axum::http::Method;
use axum::response::Response;
use maud::{Markup, html};
use punctual_domain::schedule::Schedule;
use serde_json::{Map, Value, json};

use super::form::Form;
use super::layout::Place;
use super::parts::{facts, number};
use super::schedule::pause_end;
use super::visitor::{Visitor, said};
use crate::cli::when;
use crate::http::problem::Problem;
use crate::http::schedule_edit::{check_schedule_topic, find, schedule_id};

/// `POST /schedules/{id}/pause`: pauses it, or changes the note and the end of a pause that was seen.
pub(crate) async fn pause(visitor: Visitor, Path(id): Path<String>, form: Form) -> Result<Response, Problem> {
    let (back, schedule) = (format!("/schedules/{id}"), find(&visitor.api, schedule_id(&id)?).await?);
    let version = form.text("version");
    let mut body = Map::new();
    form.copy_texts(&["note"], &mut body);
    if version.is_some() {
        // Whoever saw the note and emptied it wants none.
        body.entry("note").or_insert(Value::Null);
    }
    let paused = match pause_until(&visitor, &schedule, &form) {
        Ok(until) => {
            body.extend(until.map(|until| ("until".to_owned(), until.into())));
            let body = Value::from(body).to_string();
            visitor.act_on(version, Method::POST, &["schedules", &id, "pause"], Some(body)).await
        }
        Err(problem) => Err(problem),
    };
    match paused {
        Ok(_) if version.is_some() => Ok(visitor.done(&back, "The pause was changed.")),
        Ok(_) => Ok(visitor.done(&back, format!("“{}” is paused.", schedule.definition.name))),
        Err(problem) => visitor.refused(&back, problem),
    }
}

/// When the pause is to end. One that was left as it stood is kept to the instant, also where clocks show its time twice.
fn pause_until(visitor: &Visitor, schedule: &Schedule, form: &Form) -> Result<Option<String>, Problem> {
    let Some(text) = form.text("until") else { return Ok(None) };
    let kept = pause_end(schedule, &visitor.api.zones).is_some_and(|stood| stood == text);
    match schedule.paused_until.filter(|_| kept) {
        Some(until) => Ok(Some(when::written(until))),
        None => visitor.instant("until", text, &schedule.definition.timezone).map(Some),
    }
}

/// `POST /schedules/{id}/resume`.
pub(crate) async fn resume(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let back = format!("/schedules/{id}");
    match visitor.act(Method::POST, &["schedules", &id, "resume"], None).await {
        Ok(schedule) => {
            Ok(visitor.done(&back, format!("“{}” fires again.", schedule["name"].as_str().unwrap_or_default())))
        }
        Err(problem) => visitor.refused(&back, problem),
    }
}

/// `POST /schedules/{id}/trigger`.
pub(crate) async fn trigger(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    match visitor.act(Method::POST, &["schedules", &id, "trigger"], None).await {
        Ok(task) => {
            let to = format!("/tasks/{}", task["id"].as_str().unwrap_or_default());
            Ok(visitor.done(&to, "Triggered: this is the task that it made."))
        }
        Err(problem) => visitor.refused(&format!("/schedules/{id}"), problem),
    }
}

/// `GET /schedules/{id}/delete`: asks once more.
pub(crate) async fn ask_to_delete(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let schedule = find(&visitor.api, schedule_id(&id)?).await?;
    check_schedule_topic(&visitor.caller, &schedule)?;
    let name = &schedule.definition.name;
    let body = html! {
        (trail(&schedule))
        h1 { "Delete “" (name) "”?" }
        div.sheet {
            p { "It fires no more, and its pending tasks are cancelled. What runs is let finish, and its executions stay readable until retention removes them." }
            form.actions method="post" action={ "/schedules/" (id) "/delete" } {
                input type="hidden" name="version" value=(schedule.version);
                button.danger type="submit" { "Delete it" }
                a.button href={ "/schedules/" (id) } { "Leave it" }
            }
        }
    };
    Ok(visitor.page(Place::Schedules, "Delete schedule", &body))
}

/// `POST /schedules/{id}/delete`.
pub(crate) async fn delete(visitor: Visitor, Path(id): Path<String>, form: Form) -> Result<Response, Problem> {
    match visitor.act_on(form.text("version"), Method::DELETE, &["schedules", &id], None).await {
        Ok(_) => Ok(visitor.done("/schedules", "The schedule was deleted.")),
        Err(problem) => visitor.refused(&format!("/schedules/{id}"), problem),
    }
}

/// `GET /schedules/{id}/backfill`.
pub(crate) async fn ask_to_backfill(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let schedule = find(&visitor.api, schedule_id(&id)?).await?;
    check_schedule_topic(&visitor.caller, &schedule)?;
    Ok(backfill_page(&visitor, &schedule, &Form::default(), &html! {}))
}

/// `POST /schedules/{id}/backfill`: counts first, and makes the tasks once that was seen.
pub(crate) async fn backfill(visitor: Visitor, Path(id): Path<String>, form: Form) -> Result<Response, Problem> {
    let schedule = find(&visitor.api, schedule_id(&id)?).await?;
    let is_confirmed = form.text("confirmed") == Some("true");
    let body = backfill_body(&visitor, &schedule, &form, !is_confirmed);
    let filled = match body {
        Ok(body) => visitor.act(Method::POST, &["schedules", &id, "backfill"], Some(&body)).await,
        Err(problem) => Err(problem),
    };
    let count = |answer: &Value, name: &str| number(answer[name].as_u64().unwrap_or_default());
    match filled {
        Ok(answer) if is_confirmed => {
            let made = format!(
                "{} fires were made; {} instants had fired before.",
                count(&answer, "made"),
                count(&answer, "alreadyFired")
            );
            Ok(visitor.done(&format!("/schedules/{id}"), made))
        }
        Ok(answer) => {
            let counted = html! {
                section.sheet aria-labelledby="counted" {
                    h2 #counted { "This would happen" }
                    (facts(&[
                        ("Fires to make", html! { strong { (count(&answer, "made")) } }),
                        ("Fired before", html! { (count(&answer, "alreadyFired")) }),
                        ("Left out, by calendars or as not decided yet", html! { (count(&answer, "skipped")) }),
                    ]))
                    @if answer["made"].as_u64() != Some(0) {
                        form.actions method="post" action={ "/schedules/" (id) "/backfill" } {
                            @for name in ["from", "to", "maxFires"] { @if let Some(value) = form.text(name) { input type="hidden" name=(name) value=(value); } }
                            input type="hidden" name="confirmed" value="true";
                            button.primary type="submit" { "Make " (count(&answer, "made")) " fires" }
                        }
                    } @else { p.empty { "There is nothing to fill in." } }
                }
            };
            Ok(backfill_page(&visitor, &schedule, &form, &counted))
        }
        Err(problem) => match visitor.refused("", problem.clone()) {
            Ok(_) => Ok(backfill_page(
                &visitor,
                &schedule,
                &form,
                &html! { p.notice.refused role="alert" { (said(&problem)) } },
            )),
            Err(problem) => Err(problem),
        },
    }
}

fn backfill_body(visitor: &Visitor, schedule: &Schedule, form: &Form, is_dry_run: bool) -> Result<Value, Problem> {
    let mut body = Map::new();
    for name in ["from", "to"] {
        if let Some(text) = form.text(name) {
            body.insert(name.to_owned(), visitor.instant(name, text, &schedule.definition.timezone)?.into());
        }
    }
    form.copy_numbers(&["maxFires"], &mut body);
    body.insert("dryRun".into(), json!(is_dry_run));
    Ok(body.into())
}

fn backfill_page(visitor: &Visitor, schedule: &Schedule, form: &Form, below: &Markup) -> Response {
    let zone = &schedule.definition.timezone;
    let body = html! {
        (trail(schedule))
        h1 { "Backfill “" (schedule.definition.name) "”" }
        p.dim { "Makes the tasks of past instants that have not fired. First it is only counted." }
        form.sheet.filters method="post" action={ "/schedules/" (schedule.id) "/backfill" } {
            label { "From (in " (zone) ")" input type="datetime-local" name="from" required value=[form.text("from")]; }
            label { "To (in " (zone) ")" input type="datetime-local" name="to" required value=[form.text("to")]; }
            label { "Most fires" input name="maxFires" inputmode="numeric" placeholder="1000" value=[form.text("maxFires")]; }
            button type="submit" { "Count first" }
        }
        (below)
    };
    visitor.page(Place::Schedules, "Backfill", &body)
}

fn trail(schedule: &Schedule) -> Markup {
    html! {
        p.trail { a href="/schedules" { "Schedules" } " / " a href={ "/schedules/" (schedule.id) } { (schedule.definition.name) } " /" }
    }
}
