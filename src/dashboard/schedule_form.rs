//! `/schedules/new` and `/schedules/{id}/edit`: a schedule is written, and shows meanwhile when it would fire.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use punctual_domain::calendar::Calendar;
use punctual_domain::invalid::FieldError;
use punctual_domain::schedule::{Rhythm, Schedule};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::form::{Form, PayloadForm, lines};
use super::json::to_edit;
use super::layout::Place;
use super::parts::{Tone, badge, empty, table};
use super::schedule::word;
use super::schedules::every;
use super::visitor::{Visitor, said};
use crate::cli::when;
use crate::http::merge_patch::merge;
use crate::http::problem::{Code, Problem};
use crate::http::schedule_edit::{check_schedule_topic, find, schedule_id};
use crate::http::schedule_view::document;

/// `GET /schedules/new`.
pub(crate) async fn new(visitor: Visitor) -> Result<Response, Problem> {
    let fields = Form::from_pairs([("timezone", "UTC"), ("rhythm", "cron"), ("payload", "{}"), ("enabled", "true")]);
    let preview = no_preview();
    draw(&visitor, None, &fields, None, &preview).await
}

/// `GET /schedules/{id}/edit`.
pub(crate) async fn edit(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let schedule = find(&visitor.api, schedule_id(&id)?).await?;
    check_schedule_topic(&visitor.caller, &schedule)?;
    let fields = of_schedule(&schedule);
    let preview = preview_of(&visitor, &fields).await;
    draw(&visitor, Some(&id), &fields, None, &preview).await
}

/// `POST /schedules/preview`: the same form again, with when it would fire.
pub(crate) async fn preview(visitor: Visitor, PayloadForm(form): PayloadForm) -> Result<Response, Problem> {
    let preview = preview_of(&visitor, &form).await;
    let id = form.text("id").map(str::to_owned);
    draw(&visitor, id.as_deref(), &form, None, &preview).await
}

/// `POST /schedules/new`.
pub(crate) async fn create(visitor: Visitor, PayloadForm(form): PayloadForm) -> Result<Response, Problem> {
    let made = match body(&form) {
        Ok(mut body) => {
            body.retain(|_, value| !value.is_null());
            let whole = with_payload(&Value::from(body).to_string(), entered_payload(&form));
            visitor.act_on(None, Method::POST, &["schedules"], Some(whole)).await
        }
        Err(problem) => Err(problem),
    };
    match made {
        Ok(made) => {
            let to = format!("/schedules/{}", made["id"].as_str().unwrap_or_default());
            Ok(visitor.done(&to, format!("The schedule “{}” was made.", form.raw("name").unwrap_or_default())))
        }
        Err(problem) => again(&visitor, None, &form, problem).await,
    }
}

/// `POST /schedules/{id}/edit`.
pub(crate) async fn save(
    visitor: Visitor,
    Path(id): Path<String>,
    PayloadForm(form): PayloadForm,
) -> Result<Response, Problem> {
    let saved = match body(&form) {
        Ok(mut body) => {
            // Whether it is on is changed by pausing and resuming, which say why.
            body.remove("enabled");
            let schedule = find(&visitor.api, schedule_id(&id)?).await?;
            let (seen, stored) = (schedule.version.to_string(), schedule.definition.payload.as_str());
            // What was not touched stays as it was written, with the line ends that it has.
            let is_same =
                |name: &str, shown: &str| form.raw(name).is_some_and(|entered| entered == lines(shown.into()));
            let payload = if is_same("payload", &to_edit(stored)) { stored } else { entered_payload(&form) };
            if let Some(description) = &schedule.definition.description
                && is_same("description", description)
            {
                body.insert("description".into(), description.as_str().into());
            }
            // The whole is replaced: a patch would take each `null` in the payload for something to remove.
            body.insert("payload".into(), Value::Null);
            let rest = merge(&document(&schedule)?, &Value::from(body).to_string());
            let version = form.text("version").unwrap_or(&seen);
            let whole = with_payload(&rest, payload);
            visitor.act_on(Some(version), Method::PUT, &["schedules", &id], Some(whole)).await
        }
        Err(problem) => Err(problem),
    };
    match saved {
        Ok(_) => Ok(visitor.done(&format!("/schedules/{id}"), "The schedule was changed.")),
        Err(problem) => again(&visitor, Some(&id), &form, problem).await,
    }
}

/// The form again, with what is wrong; what cannot be mended there is a page of its own.
async fn again(visitor: &Visitor, id: Option<&str>, form: &Form, problem: Problem) -> Result<Response, Problem> {
    if matches!(problem.code, Code::Forbidden | Code::NotFound | Code::Unavailable | Code::Internal) {
        return Err(problem);
    }
    let preview = preview_of(visitor, form).await;
    draw(visitor, id, form, Some(&problem), &preview).await
}

/// What the form says but for the payload, as the API takes it; where nothing was entered, `null`.
fn body(form: &Form) -> Result<Map<String, Value>, Problem> {
    let mut body: Map<String, Value> =
        TEXTS.iter().chain(WRITTEN).chain(NUMBERS).map(|name| ((*name).to_owned(), Value::Null)).collect();
    form.copy_texts(TEXTS, &mut body);
    // Blanks belong to a name, here as in the API: whoever edits something else does not rename it.
    for name in WRITTEN {
        if let Some(text) = form.given(name) {
            body.insert((*name).to_owned(), text.into());
        }
    }
    form.copy_numbers(NUMBERS, &mut body);
    let (mut cron, mut interval) = (Value::Null, Value::Null);
    if form.text("rhythm") == Some("every") {
        let every = form.text("every").unwrap_or_default();
        let every = when::duration(every).map_err(|message| Problem::invalid("everyMs", message))?;
        interval = u64::try_from(every.as_millis()).unwrap_or(u64::MAX).into();
    } else {
        cron = form.text("cronExpression").unwrap_or_default().into();
    }
    body.insert("cronExpression".into(), cron);
    body.insert("everyMs".into(), interval);
    serde_json::from_str::<&RawValue>(entered_payload(form))
        .map_err(|error| Problem::invalid("payload", format!("is not JSON: {error}")))?;
    body.insert("excludeCalendars".into(), form.all("excludeCalendars").map(Value::from).collect());
    body.insert("enabled".into(), json!(form.text("enabled") == Some("true")));
    for name in ["overlapPolicy", "misfirePolicy"] {
        if let Some(word) = form.text(name) {
            body.insert(name.to_owned(), word.into());
        }
    }
    Ok(body)
}

const TEXTS: &[&str] = &["timezone", "topic", "startAt", "endAt", "dstGap", "dstFold"];
/// What people wrote, which is kept as it is.
const WRITTEN: &[&str] = &["name", "description"];
const NUMBERS: &[&str] =
    &["maxRetries", "timeoutSeconds", "priority", "misfireWindowSeconds", "jitterSeconds", "maxFires"];

/// What a schedule says, as the form shows it.
fn of_schedule(schedule: &Schedule) -> Form {
    let definition = &schedule.definition;
    let (kind, cron, interval) = match &definition.rhythm {
        Rhythm::Cron(expression) => ("cron", expression.clone(), String::new()),
        Rhythm::Every(ms) => ("every", String::new(), every(*ms)),
    };
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let instant = |at: Option<_>| at.map(when::written).unwrap_or_default();
    let mut fields = vec![
        ("id", schedule.id.to_string()),
        ("version", schedule.version.to_string()),
        ("name", definition.name.clone()),
        ("description", definition.description.clone().unwrap_or_default()),
        ("rhythm", kind.to_owned()),
        ("cronExpression", cron),
        ("every", interval),
        ("timezone", definition.timezone.clone()),
        ("topic", definition.topic.clone()),
        ("payload", to_edit(definition.payload.as_str())),
        ("maxRetries", number(definition.max_retries.map(u64::from))),
        ("timeoutSeconds", number(definition.timeout_seconds.map(u64::from))),
        ("priority", definition.priority.to_string()),
        ("overlapPolicy", word(definition.overlap_policy)),
        ("misfirePolicy", word(definition.misfire_policy)),
        ("misfireWindowSeconds", definition.misfire_window_seconds.to_string()),
        ("jitterSeconds", definition.jitter_seconds.to_string()),
        ("startAt", instant(definition.start_at)),
        ("endAt", instant(definition.end_at)),
        ("maxFires", number(definition.max_fires)),
        ("dstGap", definition.dst_gap.map(word).unwrap_or_default()),
        ("dstFold", definition.dst_fold.map(word).unwrap_or_default()),
    ];
    fields.extend(definition.exclude_calendars.iter().map(|name| ("excludeCalendars", name.clone())));
    Form::from_pairs(fields)
}

/// The payload as it was entered: its digits, and the order of its keys, are the author's.
fn entered_payload(form: &Form) -> &str {
    form.text("payload").unwrap_or("{}")
}

/// A JSON object that has no payload yet, with this one.
fn with_payload(object: &str, payload: &str) -> String {
    let rest = object.trim_end().strip_suffix('}').unwrap_or_default();
    let comma = if rest.trim_end().ends_with('{') { "" } else { "," };
    format!("{rest}{comma}\"payload\":{payload}}}")
}

/// When what the form says would fire, or why that cannot be said.
async fn preview_of(visitor: &Visitor, form: &Form) -> Markup {
    let asked = match body(form) {
        Ok(mut body) => {
            // What has nothing to do with when it fires need not be right yet.
            body.retain(|name, value| !value.is_null() && WHEN.contains(&name.as_str()));
            visitor.act(Method::POST, &["schedules", "preview"], Some(&body.into())).await
        }
        Err(problem) => Err(problem),
    };
    match asked {
        Ok(answer) => shown(&answer, form.text("timezone").unwrap_or_default()),
        Err(problem) => html! {
            div #preview aria-live="polite" { p.wrong { (said(&problem)) } }
        },
    }
}

const WHEN: &[&str] =
    &["cronExpression", "everyMs", "timezone", "startAt", "endAt", "maxFires", "dstGap", "dstFold", "excludeCalendars"];

fn no_preview() -> Markup {
    html! { div #preview aria-live="polite" { (empty("Say when it fires, and the next ten instants appear here.")) } }
}

/// The API's answer to a preview.
fn shown(answer: &Value, zone: &str) -> Markup {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let rows: Vec<_> = answer["next"]
        .as_array()
        .into_iter()
        .flatten()
        .map(|fire| {
            let at = text(&fire["at"]);
            vec![
                html! {
                    (text(&fire["local"]).replace('T', " ")) " " span.zone { (text(&fire["offset"])) }
                    @match fire["note"].as_str() {
                        Some("gap") => { " " (badge(Tone::Late, "gap: clocks skip the time asked for")) }
                        Some("fold") => { " " (badge(Tone::Late, "fold: clocks show this time twice")) }
                        _ => {}
                    }
                },
                html! { time datetime=(at) data-clock { (at.replace('T', " ").replace(".000Z", " UTC")) } },
            ]
        })
        .collect();
    html! {
        div #preview aria-live="polite" {
            @for warning in answer["warnings"].as_array().into_iter().flatten() { p.remark { (text(warning)) } }
            @if rows.is_empty() { (empty("It would not fire any more.")) }
            @else {
                p.hint { "Its own time is that of " (zone) "." }
                (table("The next fires", &["Its own time", "Your time"], &rows))
            }
        }
    }
}

async fn draw(
    visitor: &Visitor,
    id: Option<&str>,
    fields: &Form,
    problem: Option<&Problem>,
    preview: &Markup,
) -> Result<Response, Problem> {
    let calendars = visitor.api.store.calendars().await?;
    let (title, action) = match id {
        Some(id) => ("Edit schedule", format!("/schedules/{id}/edit")),
        None => ("New schedule", "/schedules/new".to_owned()),
    };
    let errors: &[FieldError] = problem.map_or(&[], |problem| &problem.errors);
    let unplaced: Vec<_> = errors.iter().filter(|error| !PLACED.contains(&error.field.as_str())).collect();
    let body = html! {
        p.trail { a href="/schedules" { "Schedules" } " /" }
        h1 { (title) }
        @if let Some(problem) = problem {
            div.notice.refused role="alert" {
                @if errors.is_empty() { (problem.detail) }
                @else if unplaced.is_empty() { "Not saved: see the fields below." }
                @for error in &unplaced { p { (error.field) ": " (error.message) } }
            }
        }
        form.split method="post" action=(action) data-preview="/schedules/preview" {
            @for name in ["id", "version"] { @if let Some(value) = fields.text(name) { input type="hidden" name=(name) value=(value); } }
            div {
                (inputs(fields, errors, &calendars, id.is_none()))
                p.actions {
                    button.primary type="submit" { @if id.is_some() { "Save" } @else { "Create" } }
                    button type="submit" formaction="/schedules/preview" formnovalidate { "Preview" }
                    a.button href=(id.map_or_else(|| "/schedules".to_owned(), |id| format!("/schedules/{id}"))) { "Leave it" }
                }
            }
            aside.sheet aria-labelledby="preview-title" {
                h2 #preview-title { "Next ten fires" }
                (preview)
            }
        }
    };
    let status = problem.map_or(StatusCode::OK, |problem| problem.code.status());
    Ok(visitor.page_with(status, Place::Schedules, title, &body))
}

/// Fields whose errors stand beside them.
const PLACED: &[&str] = &[
    "name",
    "description",
    "cronExpression",
    "everyMs",
    "timezone",
    "topic",
    "payload",
    "maxRetries",
    "timeoutSeconds",
    "priority",
    "misfireWindowSeconds",
    "jitterSeconds",
    "startAt",
    "endAt",
    "maxFires",
    "dstGap",
    "dstFold",
    "overlapPolicy",
    "misfirePolicy",
    "excludeCalendars",
];

fn inputs(fields: &Form, errors: &[FieldError], calendars: &[Calendar], is_new: bool) -> Markup {
    let input = |name: &'static str, label: &str, hint: &str, more: &str| text(fields, errors, name, label, hint, more);
    let is_every = fields.text("rhythm") == Some("every");
    html! {
        fieldset.sheet {
            legend { "What it is" }
            div.fields {
                (input("name", "Name", "", "nightly-report"))
                (input("topic", "Topic", "where its tasks go", "report.nightly"))
                div.wide { (description(fields, errors)) }
            }
        }
        fieldset.sheet {
            legend { "When it fires" }
            div.fields {
                div.wide.radios {
                    label { input type="radio" name="rhythm" value="cron" checked[!is_every]; " By a cron expression" }
                    label { input type="radio" name="rhythm" value="every" checked[is_every]; " At an interval" }
                }
                (input("cronExpression", "Cron expression", "minute hour day month weekday, or seconds first", "0 9 * * mon-fri"))
                (interval(fields, errors))
                (input("timezone", "Time zone", "an IANA name", "America/Edmonton"))
            }
        }
        fieldset.sheet {
            legend { "What its tasks carry" }
            (payload(fields, errors))
            @if is_new {
                p { label { input type="checkbox" name="enabled" value="true" checked[fields.text("enabled") == Some("true")]; " Enabled from the start" } }
            }
        }
        details.sheet #policies open[!errors.is_empty()] {
            summary { "Policies and bounds" }
            div.fields {
                (choice(fields, "overlapPolicy", "When the one before still runs", &[("skip", "skip this one"), ("queue", "wait for it"), ("cancel_previous", "cancel it"), ("allow", "run both")]))
                (choice(fields, "misfirePolicy", "When instants were missed", &[("fire_once", "fire the latest"), ("fire_all", "fire all"), ("skip", "fire none")]))
                (input("misfireWindowSeconds", "Misfire window", "seconds; older ones never fire", "86400"))
                (input("maxRetries", "Attempts", "in all", "3"))
                (input("timeoutSeconds", "Time limit", "seconds per attempt", "3600"))
                (input("priority", "Priority", "−100 to 100, larger first", "0"))
                (input("jitterSeconds", "Jitter", "seconds its tasks are spread over", "0"))
                (input("maxFires", "Most fires", "then it is done", "no bound"))
                (input("startAt", "Starts", "RFC 3339 with offset", "2026-12-01T00:00:00Z"))
                (input("endAt", "Ends before", "RFC 3339 with offset", "2027-12-01T00:00:00Z"))
                (choice(fields, "dstGap", "A time that clocks skip", &[("", "by the rule"), ("next_valid", "fires after the gap"), ("skip", "does not fire")]))
                (choice(fields, "dstFold", "A time that clocks show twice", &[("", "by the rule"), ("first", "fires the first time"), ("both", "fires both times")]))
                @if !calendars.is_empty() {
                    div.field.wide {
                        span.label { "Calendars whose days are left out" }
                        @for calendar in calendars {
                            @let is_chosen = fields.all("excludeCalendars").any(|name| name == calendar.name);
                            label.check { input type="checkbox" name="excludeCalendars" value=(calendar.name) checked[is_chosen]; " " (calendar.name) }
                        }
                    }
                }
            }
        }
    }
}

fn text(fields: &Form, errors: &[FieldError], name: &'static str, label: &str, hint: &str, example: &str) -> Markup {
    let wrong = errors.iter().find(|error| error.field == name);
    html! {
        div.field {
            label for=(name) { (label) }
            input id=(name) name=(name) value=[fields.raw(name)] placeholder=[(!example.is_empty()).then_some(example)]
                spellcheck="false" autocomplete="off" aria-invalid=[wrong.map(|_| "true")]
                aria-describedby=[(wrong.is_some() || !hint.is_empty()).then(|| format!("{name}-said"))];
            (beside(name, hint, wrong))
        }
    }
}

fn interval(fields: &Form, errors: &[FieldError]) -> Markup {
    let wrong = errors.iter().find(|error| error.field == "everyMs");
    html! {
        div.field {
            label for="every" { "Interval" }
            input #every name="every" value=[fields.raw("every")] placeholder="15m" aria-invalid=[wrong.map(|_| "true")] aria-describedby="every-said";
            (beside("every", "such as 90s, 15m, 1h30m or 2d", wrong))
        }
    }
}

fn description(fields: &Form, errors: &[FieldError]) -> Markup {
    let wrong = errors.iter().find(|error| error.field == "description");
    let entered = fields.raw("description").unwrap_or_default();
    let rows = entered.lines().count().clamp(2, 12);
    html! {
        div.field {
            label for="description" { "Description" }
            // Browsers leave out a line end that comes first; this is the one.
            textarea.prose #description name="description" rows=(rows) aria-invalid=[wrong.map(|_| "true")] aria-describedby="description-said" { "\n" (entered) }
            (beside("description", "for people", wrong))
        }
    }
}

fn payload(fields: &Form, errors: &[FieldError]) -> Markup {
    let wrong = errors.iter().find(|error| error.field == "payload");
    let entered = fields.raw("payload").unwrap_or("{}");
    let rows = entered.lines().count().clamp(4, 24);
    html! {
        div.field {
            label for="payload" { "Payload" }
            textarea #payload name="payload" rows=(rows) spellcheck="false" aria-invalid=[wrong.map(|_| "true")] aria-describedby="payload-said" { (entered) }
            (beside("payload", "any JSON", wrong))
        }
    }
}

fn beside(name: &str, hint: &str, wrong: Option<&FieldError>) -> Markup {
    html! {
        @match wrong {
            Some(wrong) => { p.wrong id={ (name) "-said" } { (wrong.message) } }
            None => { @if !hint.is_empty() { span.hint id={ (name) "-said" } { (hint) } } }
        }
    }
}

fn choice(fields: &Form, name: &'static str, label: &str, options: &[(&str, &str)]) -> Markup {
    let chosen = fields.raw(name).unwrap_or_default();
    html! {
        div.field {
            label for=(name) { (label) }
            select id=(name) name=(name) {
                @for (value, word) in options { option value=(value) selected[chosen == *value] { (word) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_payload_goes_as_it_was_entered() {
        for (object, payload, expected) in
            [("{}", "1.50", r#"{"payload":1.50}"#), (r#"{"a":1}"#, r#"{"b":null}"#, r#"{"a":1,"payload":{"b":null}}"#)]
        {
            assert_eq!(with_payload(object, payload), expected);
        }
    }
}
