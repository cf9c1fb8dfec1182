//! `/tasks`: a list behind a filter that stands in the address, and what can be done with all that it finds.

use axum::http::{Method, Uri};
use axum::response::Response;
use maud::{Markup, html};
use punctual_domain::id::TaskId;
use punctual_domain::key::Role;
use punctual_domain::store::{Page, TaskFilter};
use punctual_domain::task::{Task, TaskStatus};
use serde_json::{Map, Value, json};

use super::form::{Form, encoded};
use super::layout::Place;
use super::parts::{ago, clock, empty, number, pager, short, status, table, with};
use super::visitor::{Visitor, led};
use crate::http::cursor;
use crate::http::list_page::ListPage;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

/// How many tasks a page has.
const LIMIT: u32 = 50;
/// Up to how many tasks are counted before they are changed.
const COUNTED: u32 = 10_000;

/// The parameters that make up a filter.
const FILTERS: [&str; 9] =
    ["status", "topic", "ownerId", "tenantId", "correlationId", "clientRequestId", "scheduleId", "from", "to"];

/// `GET /tasks`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let api = &visitor.api;
    let mut parameters = Parameters::of(&visitor.uri)?;
    if let Some(id) = parameters.text("id") {
        return find(&visitor, id.trim()).await;
    }
    let (filter, page): (_, Page<TaskId>) = (parameters.task_filter(), parameters.page());
    parameters.finish()?;
    let page = Page { limit: LIMIT, ..page };
    let list = ListPage::read(&api.page_memory, page, |page| api.store.tasks(&filter, page)).await?;
    let next_cursor = list.next.map(|id| cursor::after(id.0));
    let asked = asked(&visitor.uri);
    let is_filtered = FILTERS.iter().any(|name| asked.given(name).is_some());
    let body = html! {
        div.head {
            h1 { "Tasks" }
            form.filters method="get" action="/tasks" role="search" {
                label { "Find by id" input name="id" placeholder="018f…" spellcheck="false"; }
                button type="submit" { "Find" }
            }
        }
        (filters(&visitor, &asked, is_filtered))
        section #tasks.sheet data-live aria-label="Tasks" {
            @if list.items.is_empty() {
                @if is_filtered { (empty("No task matches the filter.")) }
                @else { (empty("There are no tasks yet. Each one is listed here, the newest first, with where it stands.")) }
            } @else {
                (rows(&list.items, visitor.now))
            }
            (pager(&visitor.uri, next_cursor.as_deref()))
        }
        @if is_filtered && !list.items.is_empty() && visitor.may(Role::Operate) && visitor.caller.check_filter(&filter).is_ok() { (bulk_links(&visitor.uri, &filter)) }
    };
    Ok(visitor.page(Place::Tasks, "Tasks", &body))
}

/// Leads to the task of that id.
async fn find(visitor: &Visitor, id: &str) -> Result<Response, Problem> {
    let task = match id.parse::<TaskId>() {
        Ok(id) => visitor.api.store.task(id).await?.map(|found| found.task.id),
        Err(_) => None,
    };
    match task {
        Some(id) => Ok(led(&format!("/tasks/{id}"))),
        None => {
            Ok(visitor.not_found("/tasks", &format!("There is no task “{}”.", id.chars().take(60).collect::<String>())))
        }
    }
}

fn asked(uri: &Uri) -> Form {
    Form::of(uri.query().unwrap_or_default()).unwrap_or_default()
}

fn filters(visitor: &Visitor, asked: &Form, is_filtered: bool) -> Markup {
    let chosen = asked.given("status");
    let first = with(&visitor.uri, "cursor", None).parse().unwrap_or_else(|_| visitor.uri.clone());
    html! {
        div.sheet {
            nav.tabs aria-label="Status" {
                a href=(with(&first, "status", None)) aria-current=[chosen.is_none().then_some("true")] { "All" }
                @for status in TaskStatus::ALL {
                    @let name = status.as_str();
                    a href=(with(&first, "status", Some(name))) aria-current=[(chosen == Some(name)).then_some("true")] { (name) }
                }
            }
            form.filters.gap method="get" action="/tasks" {
                @if let Some(chosen) = chosen { input type="hidden" name="status" value=(chosen); }
                @for (name, label, example) in [
                    ("topic", "Topic", "mail.welcome"),
                    ("ownerId", "Owner", ""),
                    ("tenantId", "Tenant", ""),
                    ("correlationId", "Correlation", ""),
                    ("clientRequestId", "Client request", ""),
                    ("scheduleId", "Schedule id", ""),
                    ("from", "Due from", "2026-11-18T00:00:00Z"),
                    ("to", "Due before", "2026-11-19T00:00:00Z"),
                ] {
                    label { (label) input name=(name) value=[asked.given(name)] placeholder=[(!example.is_empty()).then_some(example)] spellcheck="false"; }
                }
                button type="submit" { "Filter" }
                @if is_filtered { a.button href="/tasks" { "Clear" } }
            }
        }
    }
}

fn rows(tasks: &[Task], now: chrono::DateTime<chrono::Utc>) -> Markup {
    let rows: Vec<_> = tasks
        .iter()
        .map(|task| {
            vec![
                html! { a href={ "/tasks/" (task.id) } { (short(task.id)) } },
                html! { a.plain href={ "/tasks?topic=" (encoded(task.topic.as_str())) } { (task.topic) } },
                html! {
                    (status(task.status))
                    @if task.attempt > 1 { span.sub { "attempt " (task.attempt) } }
                },
                html! { (ago(task.run_at, now)) span.sub { (clock(task.run_at)) } },
                html! {
                    @if let Some(error) = &task.error { span.bad { (error.chars().take(160).collect::<String>()) } }
                    @else if let Some(fire) = &task.fire { a.plain href={ "/schedules/" (fire.schedule_id) } { "of a schedule" } }
                    @else { span.dim { "–" } }
                },
            ]
        })
        .collect();
    table("Tasks", &["Task", "Topic", "Status", "Due", "Error or origin"], &rows)
}

/// What can be done with all tasks of a filter; each asks first, with how many they are.
fn bulk_links(uri: &Uri, filter: &TaskFilter) -> Markup {
    let query = with(&with(uri, "cursor", None).parse().unwrap_or_else(|_| uri.clone()), "limit", None);
    let query = query.split_once('?').map_or("", |(_, query)| query);
    html! {
        section.actions aria-label="With everything that matches" {
            span.dim { "Everything that matches: " }
            @if filter.live_only().is_some() { a.button.danger href={ "/tasks/bulk?action=cancel&" (query) } { "Cancel…" } }
            @if filter.failed_only().is_some() { a.button href={ "/tasks/bulk?action=retry&" (query) } { "Retry failed…" } }
        }
    }
}

/// What is done with many tasks.
#[derive(Clone, Copy)]
enum Action {
    Cancel,
    Retry,
}

impl Action {
    fn of(form: &Form) -> Result<Self, Problem> {
        match form.text("action") {
            Some("cancel") => Ok(Self::Cancel),
            Some("retry") => Ok(Self::Retry),
            _ => Err(Problem::invalid("action", "must be cancel or retry")),
        }
    }

    fn word(self) -> &'static str {
        match self {
            Self::Cancel => "cancel",
            Self::Retry => "retry",
        }
    }
}

/// `GET /tasks/bulk`: how many tasks it would be.
pub(crate) async fn ask(visitor: Visitor) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&visitor.uri)?;
    let action = Action::of(&asked(&visitor.uri))?;
    parameters.text("action");
    let filter = parameters.task_filter();
    parameters.finish()?;
    visitor.caller.check_filter(&filter)?;
    let meant = match action {
        Action::Cancel => filter.live_only(),
        Action::Retry => filter.failed_only(),
    };
    let count = match &meant {
        Some(meant) => visitor.api.store.count_tasks(meant, COUNTED + 1).await?,
        None => 0,
    };
    let asked = asked(&visitor.uri);
    let what = match (action, count) {
        (Action::Cancel, 1) => "Cancel 1 task?".to_owned(),
        (Action::Retry, 1) => "Retry 1 failed task?".to_owned(),
        (Action::Cancel, count) => format!("Cancel {} tasks?", at_most(count)),
        (Action::Retry, count) => format!("Retry {} failed tasks?", at_most(count)),
    };
    let body = html! {
        p.trail { a href="/tasks" { "Tasks" } " /" }
        h1 { (what) }
        div.sheet {
            dl.facts {
                @for name in FILTERS { @if let Some(value) = asked.given(name) { div { dt { (name) } dd { (value) } } } }
            }
            @match action {
                Action::Cancel => { p { "Pending ones never run; attempts that run are told to stop." } }
                Action::Retry => { p { "Each failed task is made anew, due now; the failed one stays as it is." } }
            }
            @if count == 0 {
                p.empty { "Nothing matches any more." }
                a.button href="/tasks" { "Back to the tasks" }
            } @else {
                form.actions method="post" action={ "/tasks/bulk/" (action.word()) } {
                    @for name in FILTERS { @if let Some(value) = asked.given(name) { input type="hidden" name=(name) value=(value); } }
                    @match action {
                        Action::Cancel => { button.danger type="submit" { "Cancel them" } }
                        Action::Retry => { button.primary type="submit" { "Retry them" } }
                    }
                    a.button href="/tasks" { "Leave them" }
                }
            }
        }
    };
    Ok(visitor.page(Place::Tasks, "Change many tasks", &body))
}

fn at_most(count: u32) -> String {
    if count > COUNTED { format!("{}+", number(COUNTED.into())) } else { number(count.into()) }
}

/// `POST /tasks/bulk/cancel`.
pub(crate) async fn cancel(visitor: Visitor, form: Form) -> Result<Response, Problem> {
    change(&visitor, &form, Action::Cancel).await
}

/// `POST /tasks/bulk/retry`.
pub(crate) async fn retry(visitor: Visitor, form: Form) -> Result<Response, Problem> {
    change(&visitor, &form, Action::Retry).await
}

async fn change(visitor: &Visitor, form: &Form, action: Action) -> Result<Response, Problem> {
    // As it is, blanks too: the tasks that are changed are those that were counted.
    let mut filter = Map::new();
    for name in FILTERS {
        let Some(value) = form.given(name) else { continue };
        let value = match name {
            "status" => value.split(',').map(|one| Value::from(one.trim())).collect(),
            _ => value.into(),
        };
        filter.insert(name.to_owned(), value);
    }
    let body = json!({ "filter": filter });
    match visitor.act(Method::POST, &["tasks", action.word()], Some(&body)).await {
        Ok(answer) => {
            let count = answer["count"].as_u64().unwrap_or_default();
            let tasks = if count == 1 { "1 task was".to_owned() } else { format!("{} tasks were", number(count)) };
            let what = match action {
                Action::Cancel => "cancelled",
                Action::Retry => "made anew",
            };
            Ok(visitor.done("/tasks", format!("{tasks} {what}.")))
        }
        Err(problem) => visitor.refused("/tasks", problem),
    }
}
