//! `/outbox`: messages on their way out, what they say, and why one was not sent.

use axum::extract::Path;
use axum::http::{HeaderName, HeaderValue, Method, header};
use axum::response::{IntoResponse, Response};
use maud::{Markup, html};
use punctual_domain::id::MessageId;
use punctual_domain::key::Role;
use punctual_domain::outbox::{Message, MessageStatus};
use punctual_domain::store::Page;
use serde_json::json;

use super::json::json;
use super::layout::Place;
use super::parts::{self, Tone, badge};
use super::visitor::Visitor;
use crate::http::cursor;
use crate::http::problem::Problem;
use crate::http::query::Parameters;

const PATH: &str = "/outbox";
/// How many messages a page has.
const LIMIT: u32 = 50;

/// What a message is shown with: it is of others' making, so nothing in it runs, loads, or leads anywhere.
const PREVIEW_POLICY: &str =
    "default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'self'; sandbox";

/// `GET /outbox`.
pub(crate) async fn list(visitor: Visitor) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&visitor.uri)?;
    let status = parameters.read("status", |text| {
        if text.is_empty() {
            return Ok(None);
        }
        MessageStatus::from_name(text).map(Some).ok_or_else(|| "must be pending, sent or failed".to_owned())
    });
    let status = status.flatten();
    let page: Page<MessageId> = parameters.page();
    parameters.finish()?;
    // One more than is shown tells whether more follow.
    let mut messages = visitor.api.store.messages(status, Page { limit: LIMIT + 1, ..page }).await?;
    let has_more = messages.len() > LIMIT as usize;
    messages.truncate(LIMIT as usize);
    let next_cursor = messages.last().filter(|_| has_more).map(|last| cursor::after(last.id.0));
    let rows: Vec<_> = messages.iter().map(|message| cells(&visitor, message)).collect();
    let tabs = [(None, "All"), (Some("pending"), "Pending"), (Some("failed"), "Failed"), (Some("sent"), "Sent")];
    let body = html! {
        section #messages.sheet data-live {
            div.head {
                h1 { "Outbox" }
                nav.tabs aria-label="Which messages" {
                    @for (value, word) in tabs {
                        @let here = status.map(MessageStatus::as_str) == value;
                        @let address = value.map_or(PATH.to_owned(), |value| format!("{PATH}?status={value}"));
                        a href=(address) aria-current=[here.then_some("true")] { (word) }
                    }
                }
            }
            @if rows.is_empty() {
                (parts::empty(match status {
                    None => "Messages that handlers send, and alerts, would be here. Nothing has been sent yet.",
                    Some(MessageStatus::Pending) => "Messages that wait to be sent would be here. None does.",
                    Some(MessageStatus::Failed) => "Messages that could not be sent would be here. There are none.",
                    Some(MessageStatus::Sent) => "Messages that were sent would be here. There are none.",
                }))
            } @else {
                (parts::table("Messages, newest first", &["Status", "Recipient", "Subject", "Through", "Written", ""], &rows))
            }
            (parts::pager(&visitor.uri, next_cursor.as_deref()))
        }
    };
    Ok(visitor.page(Place::Outbox, "Outbox", &body))
}

/// `GET /outbox/{id}`.
pub(crate) async fn show(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    Parameters::of(&visitor.uri)?.finish()?;
    let message = find(&visitor, &id).await?;
    let content = message.content();
    let subject = content.as_ref().map_or_else(|_| "Message".to_owned(), |content| content.subject.clone());
    let mut facts = vec![
        ("Status", tone(message.status)),
        ("Recipient", html! { (message.recipient) }),
        ("Through", html! { (message.transport) }),
        ("Attempts", html! { (message.attempt) }),
        (
            "Written",
            html! { (parts::clock(message.created_at)) " (" (parts::ago(message.created_at, visitor.now)) ")" },
        ),
        ("Dedupe key", html! { code { (message.dedupe_key) } }),
    ];
    if message.status == MessageStatus::Pending {
        facts.push(("Next attempt", parts::ago(message.next_attempt_at, visitor.now)));
    }
    if let Some(at) = message.completed_at {
        facts.push((if message.status == MessageStatus::Sent { "Sent" } else { "Given up" }, parts::clock(at)));
    }
    if let Some(provider_id) = &message.provider_id {
        facts.push(("Provider's id", html! { code { (provider_id) } }));
    }
    let body = html! {
        p.trail { a href=(PATH) { "Outbox" } }
        section #message.sheet data-live {
            div.head {
                h1 { (subject) }
                @if message.status == MessageStatus::Failed && visitor.may_for_all_topics(Role::Operate) {
                    div.actions { (parts::act(&format!("{PATH}/{}/retry", message.id), "Retry", "primary")) }
                }
            }
            (parts::facts(&facts))
            @if let Some(error) = &message.error {
                h2 { "Last error" }
                pre.code tabindex="0" { (error) }
            }
        }
        @match &content {
            Ok(content) => {
                section.sheet {
                    h2 { "Text" }
                    pre.code tabindex="0" { (content.text) }
                }
                @if content.html.is_some() {
                    section.sheet {
                        h2 { "HTML" }
                        p.hint { "As a mail program would show it. Nothing in it can run or load anything here." }
                        iframe.mail sandbox="" title="The message as HTML" src={ (PATH) "/" (message.id) "/html" } {}
                    }
                }
                @if let Some(data) = &content.data {
                    section.sheet { h2 { "What its template was filled with" } (json(&data.to_string(), &format!("/api/v1/outbox/{}", message.id))) }
                }
            }
            Err(_) => {
                section.sheet { h2 { "Content" } (json(message.body.as_str(), &format!("/api/v1/outbox/{}", message.id))) }
            }
        }
    };
    Ok(visitor.page(Place::Outbox, &subject, &body))
}

/// `GET /outbox/{id}/html`: the message alone, for the frame.
pub(crate) async fn show_html(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    Parameters::of(&visitor.uri)?.finish()?;
    let message = find(&visitor, &id).await?;
    let html = message.content().ok().and_then(|content| content.html);
    let html = html.ok_or_else(|| Problem::not_found(&format!("HTML in the message {}", message.id)))?;
    let mut response = html.into_response();
    for (name, value) in [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, PREVIEW_POLICY),
        (HeaderName::from_static("x-content-type-options"), "nosniff"),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    Ok(response)
}

/// `POST /outbox/{id}/retry`.
pub(crate) async fn retry(visitor: Visitor, Path(id): Path<String>) -> Result<Response, Problem> {
    let to = format!("{PATH}/{}", super::form::encoded(&id));
    match visitor.act(Method::POST, &["outbox", &id, "retry"], Some(&json!({}))).await {
        Ok(_) => Ok(visitor.done(&to, "The message is tried again.")),
        Err(problem) => visitor.refused(&to, problem),
    }
}

async fn find(visitor: &Visitor, id: &str) -> Result<Message, Problem> {
    let unknown = || Problem::not_found("message of that id");
    let id: MessageId = id.parse().map_err(|_| unknown())?;
    visitor.api.store.message(id).await?.ok_or_else(unknown)
}

fn cells(visitor: &Visitor, message: &Message) -> Vec<Markup> {
    let subject = message.content().map_or_else(|_| "no subject".to_owned(), |content| content.subject);
    vec![
        tone(message.status),
        html! { (message.recipient) },
        html! {
            a href={ (PATH) "/" (message.id) } { (subject) }
            @if let Some(error) = &message.error { span.sub.wrong { (error) } }
        },
        html! { (message.transport) },
        parts::ago(message.created_at, visitor.now),
        html! {
            @if message.status == MessageStatus::Failed && visitor.may_for_all_topics(Role::Operate) {
                div.actions { (parts::act(&format!("{PATH}/{}/retry", message.id), "Retry", "")) }
            }
        },
    ]
}

fn tone(status: MessageStatus) -> Markup {
    let tone = match status {
        MessageStatus::Pending => Tone::Waiting,
        MessageStatus::Sent => Tone::Good,
        MessageStatus::Failed => Tone::Bad,
    };
    badge(tone, status.as_str())
}
