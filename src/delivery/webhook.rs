//! The transport `webhook`: messages to an address of the operator's, signed like every webhook of ours.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::SecondsFormat;
use punctual_domain::clock::Clock;
use punctual_domain::delivery::{DeliveryError, Transport};
use punctual_domain::outbox::{Content, Message};
use reqwest::StatusCode;
use reqwest::header::HeaderMap;
use serde_json::json;

use super::content;
use crate::config::Secret;
use crate::routes::courier::{Answered, Courier, Parcel};

/// How long a message waits for a place at its host before it is tried again later.
const PATIENCE: Duration = Duration::from_secs(10);
/// How much an error says of the answer.
const SHOWN: usize = 500;

/// Sends messages to a webhook.
pub(crate) struct Webhook {
    pub(crate) courier: Courier,
    /// What the receiver is told that it is: a `notification`, or an `alert`.
    pub(crate) kind: &'static str,
    pub(crate) url: Secret,
    pub(crate) secrets: Vec<Secret>,
    pub(crate) clock: Arc<dyn Clock>,
}

#[async_trait]
impl Transport for Webhook {
    async fn send(&self, message: &Message) -> Result<String, DeliveryError> {
        let Content { subject, text, html, template_slug, data } = content(message)?;
        let body = json!({
            "type": self.kind,
            "timestamp": self.clock.now().to_rfc3339_opts(SecondsFormat::Millis, true),
            "data": {
                "recipient": message.recipient,
                "dedupeKey": message.dedupe_key,
                "subject": subject,
                "text": text,
                "html": html,
                "templateSlug": template_slug,
                "data": data,
            },
        });
        let secrets: Vec<_> = self.secrets.iter().map(|secret| secret.expose().to_owned()).collect();
        // The same on every try: a repeat is known by it.
        let id = message.id.to_string();
        let parcel = Parcel {
            url: self.url.expose(),
            secrets: &secrets,
            id: id.clone(),
            body: body.to_string(),
            headers: HeaderMap::new(),
        };
        let answered = self.courier.take(parcel, PATIENCE).await.map_err(DeliveryError::later)?;
        if answered.status.is_success() { Ok(id) } else { Err(refusal(answered)) }
    }
}

/// What an answer means that is not a yes: only one that says so is for good.
fn refusal(answered: Answered) -> DeliveryError {
    let Answered { status, retry_after, body, .. } = answered;
    let error = format!("the webhook answered {status}: {}", body.trim().chars().take(SHOWN).collect::<String>());
    match status {
        StatusCode::GONE => DeliveryError::Never { error },
        _ => DeliveryError::Later { error, after: retry_after },
    }
}
