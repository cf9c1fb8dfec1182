//! `/keys`: who may do what. A key is shown once, on the answer to the form that made it.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use punctual_domain::id::KeyId;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::store::Page;
use serde_json::{Map, Value};

use super::form::{Form, encoded};
use super::layout::Place;
use super::parts::{self, Tone, badge};
use super::visitor::{Visitor, said};
use crate::http::cursor;
use crate::http::problem::{Code, Problem};
use crate::http::query::Parameters;

const PATH: &str = "/keys";
/// How many keys a page has.
const LIMIT: u32 = 100;

/// What the page shows of the keys.
struct Shown {
    keys: Vec<ApiKey>,
    next_cursor: Option<String>,
    /// Whether there are any that were not revoked.
    are_any_valid: bool,
}

impl Shown {
    async fn read(visitor: &Visitor, page: Page<KeyId>) -> Result<Self, Problem> {
        let store = &visitor.api.store;
        // One more than is shown tells whether more follow.
        let reading = store.newest_keys(Page { limit: LIMIT + 1, ..page });
        let (mut keys, are_any_valid) = tokio::try_join!(reading, store.has_valid_key())?;
        let has_more = keys.len() > LIMIT as usize;
        keys.truncate(LIMIT as usize);
        let next_cursor = keys.last().filter(|_| has_more).map(|last| cursor::after(last.id.0));
        Ok(Self { keys, next_cursor, are_any_valid })
    }
}

/// `GET /keys`.
pub(crate) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&visitor.uri)?;
    let page: Page<KeyId> = parameters.page();
    parameters.finish()?;
    let shown = Shown::read(&visitor, page).await?;
    Ok(visitor.page(Place::Keys, "Keys", &self::page(&visitor, &shown, &Form::default(), None)))
}

/// `POST /keys`.
pub(crate) async fn create(visitor: Visitor, form: Form) -> Result<Response, Problem> {
    let mut body = Map::new();
    form.copy_texts(&["name", "role"], &mut body);
    let topics: Vec<_> = form.text("topics").unwrap_or_default().split([',', ' ', '\n', '\r']).collect();
    let topics: Vec<Value> = topics.into_iter().filter(|topic| !topic.is_empty()).map(Value::from).collect();
    body.insert("topics".to_owned(), topics.into());
    let is_first = !visitor.api.store.has_valid_key().await?;
    match visitor.act(Method::POST, &["keys"], Some(&body.into())).await {
        Ok(made) => {
            let shown = Shown::read(&visitor, Page::first(LIMIT)).await?;
            let body = html! { (shown_once(&made, is_first)) (page(&visitor, &shown, &Form::default(), None)) };
            Ok(visitor.page_with(StatusCode::CREATED, Place::Keys, "A new key", &body))
        }
        Err(problem) if problem.code == Code::Invalid => {
            let shown = Shown::read(&visitor, Page::first(LIMIT)).await?;
            let body = page(&visitor, &shown, &form, Some(&said(&problem)));
            Ok(visitor.page_with(StatusCode::BAD_REQUEST, Place::Keys, "Keys", &body))
        }
        Err(problem) => Err(problem),
    }
}

/// `POST /keys/{id}/revoke`.
pub(crate) async fn revoke(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    match visitor.act(Method::DELETE, &["keys", &id], None).await {
        Ok(_) => Ok(visitor.done(PATH, "The key is revoked: nobody can use it any more.")),
        Err(problem) => visitor.refused(PATH, problem),
    }
}

fn page(visitor: &Visitor, shown: &Shown, form: &Form, refusal: Option<&str>) -> Markup {
    let rows: Vec<_> = shown.keys.iter().map(|key| cells(visitor, key)).collect();
    html! {
        section #keys.sheet {
            div.head { h1 { "Keys" } span.hint { "Who may use the API and this dashboard" } }
            @if rows.is_empty() {
                (parts::empty("API keys would be here. There are none: everybody on this machine may do everything. From the first key on everybody needs one."))
            } @else {
                (parts::table("API keys, newest first", &["Name", "Role", "Topics", "Made", "State", ""], &rows))
            }
            (parts::pager(&visitor.uri, shown.next_cursor.as_deref()))
        }
        @if visitor.may_for_all_topics(Role::Admin) { (new_key(shown.are_any_valid, form, refusal)) }
    }
}

fn new_key(are_any_valid: bool, form: &Form, refusal: Option<&str>) -> Markup {
    html! {
        section.sheet {
            h2 { "A new key" }
            @if let Some(refusal) = refusal { p.notice.refused role="alert" { (refusal) } }
            form method="post" action=(PATH) {
                div.fields {
                    label { "Name" input name="name" required maxlength="200" value=[form.raw("name")] autocomplete="off"; }
                    label {
                        "Role"
                        select name="role" {
                            // The first key must be able to make others; every other one should do no more than it has to.
                            @let usual = if are_any_valid { Role::Read } else { Role::Admin };
                            @let chosen = form.raw("role").unwrap_or(usual.as_str());
                            @for role in Role::ALL {
                                option value=(role.as_str()) selected[role.as_str() == chosen] { (role.as_str()) ": " (about(role)) }
                            }
                        }
                    }
                    label {
                        "Topics"
                        input name="topics" value=[form.raw("topics")] placeholder="all" autocomplete="off";
                        span.hint { "Only these, such as " code { "mail.* resize" } "; all if nothing is said" }
                    }
                }
                p { button.primary type="submit" { "Make the key" } }
            }
        }
    }
}

/// The key itself; nobody can show it again.
fn shown_once(made: &Value, is_first: bool) -> Markup {
    html! {
        section.sheet #made role="status" {
            h2 { "The key of " (made["name"].as_str().unwrap_or_default()) }
            p { code.secret tabindex="0" { (made["key"].as_str().unwrap_or_default()) } }
            p { "Copy it now: it is not kept, and cannot be shown again." }
            @if is_first {
                p {
                    "It is the first: from now on everybody needs a key, you too. "
                    @if made["role"] == "admin" { a href="/login" { "Log in" } " with it." }
                    @else { "It is no key of an administrator; " code { "punctual key create --database URL" } " makes one." }
                }
            }
        }
    }
}

fn cells(visitor: &Visitor, key: &ApiKey) -> Vec<Markup> {
    vec![
        html! { (key.name) span.sub { code { (key.id) } } },
        html! { (key.role.as_str()) },
        html! {
            @if key.topics.is_empty() { span.dim { "all" } }
            @for topic in &key.topics { code { (topic.as_str()) } " " }
        },
        parts::ago(key.created_at, visitor.now),
        html! {
            @match key.revoked_at {
                Some(at) => { (badge(Tone::Quiet, "revoked")) span.sub { (parts::ago(at, visitor.now)) } }
                None => { (badge(Tone::Good, "valid")) }
            }
        },
        html! {
            @if key.revoked_at.is_none() && visitor.may_for_all_topics(Role::Admin) {
                div.actions { (parts::act(&format!("{PATH}/{}/revoke", encoded(&key.id.to_string())), "Revoke", "danger")) }
            }
        },
    ]
}

fn about(role: Role) -> &'static str {
    match role {
        Role::Read => "looks at everything but keys and the audit log",
        Role::Submit => "also makes tasks and works on them",
        Role::Operate => "also changes tasks, schedules, topics and messages",
        Role::Admin => "also keys and the audit log",
    }
}
