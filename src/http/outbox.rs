//! `/api/v1/outbox`: messages on their way out, and another try for those that failed.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use punctual_domain::id::MessageId;
use punctual_domain::json::Json;
use punctual_domain::outbox::{Message, MessageStatus};
use punctual_domain::store::Page;
use serde::Serialize;

use super::auth::Caller;
use super::body::OptionalBody;
use super::call::{self, Call, idempotency_key};
use super::fields::{Fields, shortened};
use super::instant::Instant;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::{Api, cursor, json};

pub(crate) const PATH: &str = "/api/v1/outbox";

/// `GET /api/v1/outbox`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let known = MessageStatus::ALL.map(MessageStatus::as_str).join(", ");
    let status = parameters
        .read("status", |text| MessageStatus::from_name(text).ok_or_else(|| format!("must be one of {known}")));
    let page: Page<MessageId> = parameters.page();
    parameters.finish()?;
    // One more than is wanted tells whether more follow.
    let mut messages = api.store.messages(status, Page { limit: page.limit + 1, ..page }).await?;
    let has_more = messages.len() > page.limit as usize;
    messages.truncate(page.limit as usize);
    let next_cursor = messages.last().filter(|_| has_more).map(|last| cursor::after(last.id.0));
    let items: Vec<_> = messages.iter().map(MessageView::of).collect();
    cursor::page(&uri, &items, next_cursor)
}

/// `GET /api/v1/outbox/{id}`.
pub(crate) async fn show(State(api): State<Arc<Api>>, Path(id): Path<String>, uri: Uri) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    let message_id: MessageId = id.parse().map_err(|_| unknown(&id))?;
    let message = api.store.message(message_id).await?.ok_or_else(|| unknown(&id))?;
    json(StatusCode::OK, &MessageView::of(&message))
}

/// `POST /api/v1/outbox/{id}/retry`.
pub(crate) async fn retry(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
    headers: HeaderMap,
    OptionalBody(body): OptionalBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    caller.check_unlimited("messages are")?;
    let mut refusals = Refusals::default();
    let key = idempotency_key(&headers, &mut refusals);
    Fields::of_body(&body.text, &mut refusals)?.finish(&[], &mut refusals);
    let key = refusals.or(key)?;
    let message_id: MessageId = id.parse().map_err(|_| unknown(&id))?;
    let call = Call::new(&caller, key, uri.path(), &body.text);
    if let Some(first) = call.first_answer(&*api.store).await? {
        return Ok(first);
    }
    let is_retried = api.store.retry_message(message_id).await?;
    let message = api.store.message(message_id).await?.ok_or_else(|| unknown(&id))?;
    if !is_retried {
        let detail = format!("the message is {}, and only failed ones are retried", message.status.as_str());
        return Err(Problem::new(Code::NotFailed, detail));
    }
    api.wake.messages_posted();
    call.respond_and_keep(&*api.store, call::written(StatusCode::OK, &MessageView::of(&message))).await
}

fn unknown(id: &str) -> Problem {
    Problem::not_found(&format!("message {}", shortened(id)))
}

/// A message as the API shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct MessageView<'a> {
    id: MessageId,
    status: MessageStatus,
    transport: &'a str,
    recipient: &'a str,
    dedupe_key: &'a str,
    body: &'a Json,
    attempt: u32,
    next_attempt_at: Option<Instant>,
    provider_id: Option<&'a str>,
    error: Option<&'a str>,
    created_at: Instant,
    completed_at: Option<Instant>,
}

impl<'a> MessageView<'a> {
    fn of(message: &'a Message) -> Self {
        Self {
            id: message.id,
            status: message.status,
            transport: &message.transport,
            recipient: &message.recipient,
            dedupe_key: &message.dedupe_key,
            body: &message.body,
            attempt: message.attempt,
            next_attempt_at: (message.status == MessageStatus::Pending).then_some(Instant(message.next_attempt_at)),
            provider_id: message.provider_id.as_deref(),
            error: message.error.as_deref(),
            created_at: Instant(message.created_at),
            completed_at: message.completed_at.map(Instant),
        }
    }
}
