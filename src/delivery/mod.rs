//! What the Notifier sends messages through: one file per transport.

mod log;
mod mail;
pub(crate) mod queue;
mod resend;
mod smtp;
mod webhook;

use std::sync::Arc;

use punctual_domain::alert::Address;
use punctual_domain::clock::Clock;
use punctual_domain::delivery::{DeliveryError, Transports};
use punctual_domain::hand_over::Queue;
use punctual_domain::outbox::{Content, Message};
use punctual_domain::store::{Store, StoreError};

pub(crate) use smtp::explicit as explicit_smtp_url;

use crate::config::{NotifyConfig, Secret};
use crate::routes::bullmq::{Attention, Queues};
use crate::routes::courier::Courier;

/// What sends e-mails.
const MAIL: [&str; 2] = ["smtp", "resend"];
/// The transport of alerts to an address of their own.
const ALERT_WEBHOOK: &str = "alert_webhook";
/// Whom an alert is for that is not sent to anybody by name.
const NOBODY_NAMED: &str = "admin";

/// What it takes to send messages to queues.
pub(crate) struct ToQueues {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attention: Arc<Attention>,
    pub(crate) queues: Queues,
}

/// The transports that the configuration sets up.
///
/// # Errors
/// When one cannot be set up.
pub(crate) fn transports(
    config: &NotifyConfig,
    courier: &Courier,
    queues: Option<ToQueues>,
    clock: &Arc<dyn Clock>,
) -> Result<Transports, DeliverySetupError> {
    let cannot = |transport: &'static str| move |error: String| DeliverySetupError { transport, error };
    let mut transports = logging(config.transport);
    if let Some(url) = &config.smtp_url {
        let smtp = smtp::Smtp::new(url.expose(), config.mail_from.clone()).map_err(cannot("smtp"))?;
        transports = transports.with("smtp", Arc::new(smtp));
    }
    if let Some(key) = &config.resend_api_key {
        let (url, from) = (&config.resend_url, config.mail_from.clone());
        let resend = resend::Resend::new(url, key.clone(), from, Arc::clone(clock)).map_err(cannot("resend"))?;
        transports = transports.with("resend", Arc::new(resend));
    }
    let webhook = |kind: &'static str, url: &Secret| {
        let (courier, clock) = (courier.clone(), Arc::clone(clock));
        let (url, secrets) = (url.clone(), config.webhook_secrets.clone());
        Arc::new(webhook::Webhook { courier, kind, url, secrets, clock })
    };
    if let Some(url) = &config.webhook_url {
        transports = transports.with("webhook", webhook("notification", url));
    }
    if let Some(url) = &config.admin_alert_webhook_url {
        transports = transports.with(ALERT_WEBHOOK, webhook("alert", url));
    }
    if let Some(ToQueues { store, attention, queues }) = queues {
        let queue = Queue { prefix: config.queue_prefix.clone(), name: config.queue.clone() };
        transports = transports.with("queue", Arc::new(queue::ToQueue { store, attention, queues, queue }));
    }
    Ok(transports)
}

/// Has e-mails that wait for a way of sending them which is not set up any more sent by the one that is.
///
/// # Errors
/// When the store is away.
pub(crate) async fn redirect_mail(store: &dyn Store, transports: &Transports) -> Result<(), StoreError> {
    let usual = transports.usual();
    if !MAIL.contains(&usual) {
        return Ok(());
    }
    for from in MAIL.into_iter().filter(|name| transports.named(name).is_none()) {
        let messages = store.redirect_messages(from, usual).await?;
        if messages > 0 {
            tracing::warn!(
                messages,
                from,
                to = usual,
                "messages are sent by another transport than they were posted for"
            );
        }
    }
    Ok(())
}

/// Where alerts go: to whoever the configuration names, or else to the log.
pub(crate) fn alert_addresses(config: &NotifyConfig) -> Vec<Address> {
    let mut addresses = Vec::new();
    if let Some(recipient) = config.admin_alert_email.clone() {
        addresses.push(Address { transport: config.transport, recipient });
    }
    if config.admin_alert_webhook_url.is_some() {
        addresses.push(Address { transport: ALERT_WEBHOOK, recipient: NOBODY_NAMED.into() });
    }
    if addresses.is_empty() {
        addresses = only_logged_alerts();
    }
    addresses
}

/// Where alerts go when nobody is named.
pub(crate) fn only_logged_alerts() -> Vec<Address> {
    vec![Address { transport: "log", recipient: NOBODY_NAMED.into() }]
}

/// Why a transport cannot be set up.
#[derive(Debug, thiserror::Error)]
#[error("messages cannot be sent by {transport}: {error}")]
pub struct DeliverySetupError {
    transport: &'static str,
    error: String,
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
    message.content().map_err(|error| DeliveryError::never(format!("the message cannot be read: {error}")))
}
