//! `/api/v1/keys`: who may use the API.

use std::sync::Arc;

use axum::Extension;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use punctual_domain::id::KeyId;
use punctual_domain::invalid::check_name;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::store::Page;
use punctual_domain::topic::TopicPattern;
use serde::Serialize;

use super::audit::Target;
use super::auth::Caller;
use super::body::JsonBody;
use super::fields::{Fields, shortened};
use super::instant::Instant;
use super::problem::{Code, Problem, Refusals};
use super::query::Parameters;
use super::{Api, cursor, json};
use crate::keyring::NewKey;

pub(crate) const PATH: &str = "/api/v1/keys";

/// How many patterns a key may have.
pub(crate) const MOST_TOPICS: usize = 100;

/// `GET /api/v1/keys`.
pub(crate) async fn list(State(api): State<Arc<Api>>, uri: Uri) -> Result<Response, Problem> {
    let mut parameters = Parameters::of(&uri)?;
    let page: Page<KeyId> = parameters.page();
    parameters.finish()?;
    let keys = api.store.keys().await?;
    let views: Vec<_> = keys.iter().map(KeyView::of).collect();
    cursor::page_of(&uri, &views, page, |view| view.id)
}

/// `POST /api/v1/keys`.
pub(crate) async fn create(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Extension(target): Extension<Target>,
    uri: Uri,
    headers: HeaderMap,
    body: JsonBody,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    caller.check_unlimited("keys are")?;
    let mut refusals = Refusals::default();
    if headers.contains_key("Idempotency-Key") {
        // Its answer would have to be kept, and with it the key.
        refusals.add("Idempotency-Key", "cannot be used here: a key is shown once and never kept");
    }
    let mut fields = Fields::of_body(&body.text, &mut refusals)?;
    let (name, role, topics) = read(&mut fields, &mut refusals);
    fields.finish(&["id", "key", "createdAt", "revokedAt"], &mut refusals);
    refusals.or(())?;
    let NewKey { secret, stored } =
        NewKey::make(name, role, topics, api.time.now()).map_err(|reason| Problem::new(Code::Internal, reason))?;
    api.store.create_key(&stored).await?;
    api.keys.forget().await;
    target.set(stored.id.to_string());
    json(StatusCode::CREATED, &KeyView { key: Some(secret.expose()), ..KeyView::of(&stored) })
}

/// `DELETE /api/v1/keys/{id}`.
pub(crate) async fn revoke(
    State(api): State<Arc<Api>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
    uri: Uri,
) -> Result<Response, Problem> {
    Parameters::of(&uri)?.finish()?;
    caller.check_unlimited("keys are")?;
    let unknown = || Problem::not_found(&format!("API key {}, or it was revoked before", shortened(&id)));
    let key_id: KeyId = id.parse().map_err(|_| unknown())?;
    if !api.store.revoke_key(key_id).await? {
        return Err(unknown());
    }
    api.keys.forget().await;
    Ok(StatusCode::NO_CONTENT.into_response())
}

/// Reads what a new key is to be; worthless if anything was refused.
fn read(fields: &mut Fields<'_>, refusals: &mut Refusals) -> (String, Role, Vec<TopicPattern>) {
    for name in ["name", "role"] {
        if !fields.has(name) {
            refusals.add(name, "is required");
        }
    }
    let name = fields.text("name", refusals);
    if let Some(Err(message)) = name.as_deref().map(check_name) {
        refusals.add("name", message);
    }
    let role = fields.text("role", refusals).and_then(|text| {
        let role = Role::from_name(&text);
        if role.is_none() {
            refusals.add("role", format!("must be {}", Role::ALL.map(Role::as_str).join(", ")));
        }
        role
    });
    let texts = fields.texts("topics", refusals).unwrap_or_default();
    if texts.len() > MOST_TOPICS {
        refusals.add("topics", format!("must be at most {MOST_TOPICS}"));
    }
    let mut topics = Vec::new();
    for text in texts {
        match text.parse() {
            Ok(pattern) => topics.push(pattern),
            Err(_) => {
                refusals.add("topics", format!("{:?} is neither a topic nor a prefix such as mail.*", shortened(&text)))
            }
        }
    }
    (name.unwrap_or_default(), role.unwrap_or(Role::Read), topics)
}

/// A key as the API shows it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct KeyView<'a> {
    id: KeyId,
    name: &'a str,
    role: Role,
    topics: &'a [TopicPattern],
    created_at: Instant,
    revoked_at: Option<Instant>,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<&'a str>,
}

impl<'a> KeyView<'a> {
    fn of(key: &'a ApiKey) -> Self {
        Self {
            id: key.id,
            name: &key.name,
            role: key.role,
            topics: &key.topics,
            created_at: Instant(key.created_at),
            revoked_at: key.revoked_at.map(Instant),
            key: None,
        }
    }
}
