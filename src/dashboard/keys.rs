//! `/keys`: who may do what. A key is shown once, on the answer to the form that made it.

use axum::extract::Path;
use axum::http::{Method, StatusCode};
use axum::response::Response;
use maud::{Markup, html};
use punctual_domain::key::{ApiKey, Role};
use serde_json::{Map, Value};

use super::form::{Form, encoded};
use super::layout::Place;
use super::parts::{self, Tone, badge};
use super::visitor::{Visitor, said};
use crate::http::problem::{Code, Problem};
use crate::http::query::Parameters;

const PATH: &str = "/keys";

/// `GET /keys`.
pub(crate) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    Parameters::of(&visitor.uri)?.finish()?;
    let keys = visitor.api.store.keys().await?;
    Ok(visitor.page(Place::Keys, "Keys", &page(&visitor, &keys, &Form::default(), None)))
}

/// `POST /keys`.
pub(crate) async fn create(visitor: Visitor, form: Form) -> Result<Response, Problem> {
    let mut body = Map::new();
    form.copy_texts(&["name", "role"], &mut body);
    let topics: Vec<_> = form.text("topics").unwrap_or_default().split([',', ' ', '\n', '\r']).collect();
    let topics: Vec<Value> = topics.into_iter().filter(|topic| !topic.is_empty()).map(Value::from).collect();
    body.insert("topics".to_owned(), topics.into());
    match visitor.act(Method::POST, &["keys"], Some(&body.into())).await {
        Ok(made) => {
            let keys = visitor.api.store.keys().await?;
            let is_first = keys.iter().filter(|key| key.revoked_at.is_none()).count() == 1;
            let body = html! { (shown_once(&made, is_first)) (self::page(&visitor, &keys, &Form::default(), None)) };
            Ok(visitor.page_with(StatusCode::CREATED, Place::Keys, "A new key", &body))
        }
        Err(problem) if problem.code == Code::Invalid => {
            let keys = visitor.api.store.keys().await?;
            let body = page(&visitor, &keys, &form, Some(&said(&problem)));
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

fn page(visitor: &Visitor, keys: &[ApiKey], form: &Form, refusal: Option<&str>) -> Markup {
    let rows: Vec<_> = keys.iter().rev().map(|key| cells(visitor, key)).collect();
    html! {
        section #keys.sheet {
            div.head { h1 { "Keys" } span.hint { "Who may use the API and this dashboard" } }
            @if rows.is_empty() {
                (parts::empty("API keys would be here. There are none: everybody on this machine may do everything. From the first key on everybody needs one."))
            } @else {
                (parts::table("API keys, newest first", &["Name", "Role", "Topics", "Made", "State", ""], &rows))
            }
        }
        @if visitor.may_for_all_topics(Role::Admin) { (new_key(keys, form, refusal)) }
    }
}

fn new_key(keys: &[ApiKey], form: &Form, refusal: Option<&str>) -> Markup {
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
                            @let is_first = keys.iter().all(|key| key.revoked_at.is_some());
                            @let usual = if is_first { Role::Admin } else { Role::Read };
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
