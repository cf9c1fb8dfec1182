//! The transport `resend`: e-mails by way of Resend's HTTP API. It takes an e-mail with the same `Idempotency-Key` once,
//! and answers a repeat with the first one's id.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use lettre::message::Mailbox;
use punctual_domain::clock::Clock;
use punctual_domain::delivery::{DeliveryError, Transport};
use punctual_domain::outbox::Message;
use reqwest::{Client, StatusCode};
use serde::Deserialize;
use serde_json::json;

use super::mail::Mail;
use crate::config::Secret;
use crate::retry_after::retry_after;
use crate::routes::courier::reasons;

/// How long an answer may take.
const ANSWER: Duration = Duration::from_secs(30);
/// How much of an answer is shown.
const SHOWN: usize = 500;

/// Sends e-mails by way of Resend.
pub(crate) struct Resend {
    client: Client,
    url: String,
    key: Secret,
    from: Mailbox,
    clock: Arc<dyn Clock>,
}

impl Resend {
    /// Prepares calls to Resend at `url`.
    ///
    /// # Errors
    /// When there can be no HTTP client.
    pub(crate) fn new(url: &str, key: Secret, from: Mailbox, clock: Arc<dyn Clock>) -> Result<Self, String> {
        crate::tls::provide();
        let client = Client::builder()
            .timeout(ANSWER)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(concat!("punctual/", env!("CARGO_PKG_VERSION")))
            .build()
            .map_err(|error| error.to_string())?;
        Ok(Self { client, url: format!("{url}/emails"), key, from, clock })
    }
}

/// What Resend answers when it took an e-mail.
#[derive(Deserialize)]
struct Took {
    id: String,
}

#[async_trait]
impl Transport for Resend {
    async fn send(&self, message: &Message) -> Result<String, DeliveryError> {
        let Mail { from, to, subject, text, html, message_id, .. } = Mail::of(message, &self.from)?;
        let mut mail = json!({
            "from": from.to_string(),
            "to": [to.to_string()],
            "subject": subject,
            "text": text,
            "headers": {"Message-ID": message_id},
        });
        if let Some(html) = html {
            mail["html"] = html.into();
        }
        let answer = self
            .client
            .post(&self.url)
            .bearer_auth(self.key.expose())
            .header("Idempotency-Key", message_id.trim_matches(['<', '>']))
            .json(&mail)
            .send()
            .await
            .map_err(unanswered)?;
        let (status, after) = (answer.status(), retry_after(answer.headers(), self.clock.now()));
        let text = answer.text().await.map_err(unanswered)?;
        if status.is_success() {
            return match serde_json::from_str(&text) {
                Ok(Took { id }) => Ok(id),
                Err(error) => Err(DeliveryError::later(format!("Resend answered {status} and no id ({error})"))),
            };
        }
        let error = format!("Resend answered {status}: {}", text.chars().take(SHOWN).collect::<String>());
        Err(if is_for_good(status) { DeliveryError::Never { error } } else { DeliveryError::Later { error, after } })
    }
}

/// No answer, or half of one. The address may have a password in it.
fn unanswered(error: reqwest::Error) -> DeliveryError {
    DeliveryError::later(reasons(&error.without_url()))
}

/// Whether the e-mail itself was refused. A key that is refused, a limit, and a repeat that met the first try under way may
/// be different another time.
fn is_for_good(status: StatusCode) -> bool {
    status.is_client_error()
        && !matches!(
            status,
            StatusCode::UNAUTHORIZED
                | StatusCode::FORBIDDEN
                | StatusCode::REQUEST_TIMEOUT
                | StatusCode::CONFLICT
                | StatusCode::TOO_MANY_REQUESTS
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_wrong_with_the_email_is_wrong_for_good() {
        for (status, for_good) in [
            (400, true),
            (401, false),
            (403, false),
            (404, true),
            (409, false),
            (422, true),
            (429, false),
            (500, false),
            (503, false),
            (302, false),
        ] {
            assert_eq!(is_for_good(StatusCode::from_u16(status).unwrap()), for_good, "{status}");
        }
    }
}
