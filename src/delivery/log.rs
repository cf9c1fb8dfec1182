//! The transport `log`: a message is written to the log, and stays readable in the outbox. What there is when nothing else
//! is set up.

use async_trait::async_trait;
use punctual_domain::delivery::{DeliveryError, Transport};
use punctual_domain::outbox::Message;

use super::content;

/// Writes messages to the log.
pub(crate) struct Log;

#[async_trait]
impl Transport for Log {
    async fn send(&self, message: &Message) -> Result<String, DeliveryError> {
        let said = content(message)?;
        tracing::info!(
            message_id = %message.id,
            recipient = message.recipient,
            subject = said.subject,
            text = said.text,
            "message for somebody"
        );
        Ok(message.id.to_string())
    }
}
