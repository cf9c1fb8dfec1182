//! Sending one message: within its lease, whatever the transport does, and recorded whatever the store does meanwhile.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use punctual_domain::delivery::{DeliveryError, Transport};
use punctual_domain::outbox::{Message, Sending};
use punctual_domain::store::Store;
use tokio::time::{Instant, sleep, timeout_at};

use crate::attempt::panic_message;

/// The first and the longest wait before a sending that could not be recorded is recorded again.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(1);

/// A message that was taken, and by when that must have come to an end.
pub(crate) struct Taking {
    pub(crate) message: Message,
    /// When it was asked for: the lease begins no earlier.
    pub(crate) taken_at: Instant,
    pub(crate) lease: Duration,
}

impl Taking {
    /// Sends it, with three quarters of the lease to do so: what is recorded then is recorded in time.
    pub(crate) async fn send(&self, transport: &dyn Transport) -> Result<String, DeliveryError> {
        let limit = self.lease * 3 / 4;
        let sending = AssertUnwindSafe(async { transport.send(&self.message).await }).catch_unwind();
        match timeout_at(self.taken_at + limit, sending).await {
            Ok(Ok(sent)) => sent,
            Ok(Err(panic)) => Err(DeliveryError::later(format!("panicked: {}", panic_message(&*panic)))),
            Err(_) => Err(DeliveryError::later(format!("no answer within {limit:?}"))),
        }
    }

    /// Records how it ended. While the store is away it is tried again, until the lease is over and somebody else may
    /// have taken the message.
    pub(crate) async fn record(&self, store: &Arc<dyn Store>, sending: &Sending) {
        let Message { id: message_id, epoch, .. } = self.message;
        let mut wait = FIRST_WAIT;
        loop {
            match store.record_sending(message_id, epoch, sending).await {
                Ok(true) => return self.tell(sending),
                Ok(false) => {
                    tracing::warn!(%message_id, %epoch, "another has sent the message meanwhile");
                    return;
                }
                Err(error) if self.taken_at.elapsed() > self.lease => {
                    let is_out = matches!(sending, Sending::Sent { .. });
                    tracing::error!(%message_id, %error, is_out, "sending not recorded, the message is sent again");
                    return;
                }
                Err(error) => tracing::debug!(%message_id, %error, "sending not recorded yet"),
            }
            sleep(wait).await;
            wait = (wait * 2).min(LONGEST_WAIT);
        }
    }

    fn tell(&self, sending: &Sending) {
        let Message { id: message_id, transport, attempt, .. } = &self.message;
        let status = match sending {
            Sending::Sent { provider_id } => {
                tracing::debug!(%message_id, transport, provider_id, "message sent");
                "sent"
            }
            Sending::Retried { error, after } => {
                tracing::warn!(%message_id, transport, attempt, error, ?after, "message not sent, tried again");
                "retried"
            }
            Sending::Failed { error } => {
                tracing::error!(%message_id, transport, attempt, error, "message not sent");
                "failed"
            }
        };
        metrics::counter!("punctual_messages_total", "transport" => transport.clone(), "status" => status).increment(1);
    }
}

/// The ways in which sending ends, as they are counted.
pub(crate) const STATUSES: [&str; 3] = ["sent", "retried", "failed"];
