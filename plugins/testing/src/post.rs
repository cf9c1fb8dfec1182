use std::sync::{Arc, Mutex, PoisonError};

use async_trait::async_trait;
use punctual_domain::delivery::{DeliveryError, Transport, Transports};
use punctual_domain::outbox;

/// A message that was sent.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// Whom it went to.
    pub recipient: String,
    /// Its dedupe key.
    pub dedupe_key: String,
    /// `email`, `webhook` or `queue`.
    pub channel: String,
    /// Its subject.
    pub subject: String,
    /// Its text.
    pub text: String,
    /// The same in HTML.
    pub html: Option<String>,
    /// The template it was made from.
    pub template_slug: Option<String>,
    /// What its gaps were filled with.
    pub data: serde_json::Value,
}

/// What takes messages in place of mail servers and the like.
#[derive(Clone, Default)]
pub(crate) struct Post(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    sent: Vec<Message>,
    error: Option<Failing>,
}

/// Why messages cannot be sent, and which: those to one recipient, or all.
struct Failing {
    recipient: Option<String>,
    error: String,
}

impl Post {
    /// One that takes messages of every channel.
    pub(crate) fn transports(&self) -> Transports {
        let shared: Arc<dyn Transport> = Arc::new(self.clone());
        Transports::new("email").with("email", shared.clone()).with("webhook", shared.clone()).with("queue", shared)
    }

    pub(crate) fn sent(&self) -> Vec<Message> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).sent.clone()
    }

    pub(crate) fn fail(&self, recipient: Option<&str>, error: Option<&str>) {
        let failing = error.map(|error| Failing { recipient: recipient.map(str::to_owned), error: error.to_owned() });
        self.0.lock().unwrap_or_else(PoisonError::into_inner).error = failing;
    }
}

#[async_trait]
impl Transport for Post {
    async fn send(&self, message: &outbox::Message) -> Result<String, DeliveryError> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(Failing { recipient, error }) = &state.error
            && recipient.as_ref().is_none_or(|recipient| *recipient == message.recipient)
        {
            return Err(DeliveryError::later(error));
        }
        let content = message.content().map_err(DeliveryError::never)?;
        state.sent.push(Message {
            recipient: message.recipient.clone(),
            dedupe_key: message.dedupe_key.clone(),
            channel: message.transport.clone(),
            subject: content.subject,
            text: content.text,
            html: content.html,
            template_slug: content.template_slug,
            data: content.data.unwrap_or_default(),
        });
        Ok(format!("message-{}", state.sent.len()))
    }
}
