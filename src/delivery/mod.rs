//! What the Notifier sends messages through: one file per transport.

mod log;

use std::sync::Arc;

use punctual_domain::delivery::{DeliveryError, Transports};
use punctual_domain::outbox::{Content, Message};

use crate::config::NotifyConfig;

/// The transports that the configuration sets up.
pub(crate) fn transports(config: &NotifyConfig) -> Transports {
    logging(config.transport)
}

/// The transport that is always there.
pub(crate) fn only_logging() -> Transports {
    logging("log")
}

fn logging(usual: &'static str) -> Transports {
    Transports::new(usual).with("log", Arc::new(log::Log))
}

/// What a message says.
fn content(message: &Message) -> Result<Content, DeliveryError> {
    Content::of(&message.body).map_err(|error| DeliveryError::never(format!("the message cannot be read: {error}")))
}
