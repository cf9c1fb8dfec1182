use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Page, StoreError};
use crate::id::{Epoch, MessageId};
use crate::outbox::{Message, MessageStatus, NewMessage, Sending};

/// Messages on their way out.
#[async_trait]
pub trait Outbox: Send + Sync {
    /// Writes messages that are to be sent; one whose `dedupe_key` was used before is the first of that key, also
    /// after retention removed it.
    async fn post(&self, messages: Vec<NewMessage>) -> Result<Vec<Posted>, StoreError>;

    /// Takes due messages of a transport for sending, at most `limit`: their attempt and epoch grow, and nobody else takes
    /// them until `lease` has passed.
    async fn take_messages(&self, transport: &str, lease: Duration, limit: u32) -> Result<Vec<Message>, StoreError>;

    /// Writes a message and takes it for sending, or takes the first of its key, if that was not sent and is not being
    /// sent: one that waits for its next try, or has failed, counts as if it were due.
    async fn post_taken(&self, message: NewMessage, lease: Duration) -> Result<Taken, StoreError>;

    /// Records how sending ended; `false` if the epoch is not the newest or the message is not pending.
    async fn record_sending(&self, id: MessageId, epoch: Epoch, sending: &Sending) -> Result<bool, StoreError>;

    /// When the next pending message of these transports is due.
    async fn next_message_at(&self, transports: &[&str]) -> Result<Option<DateTime<Utc>>, StoreError>;

    /// One message.
    async fn message(&self, id: MessageId) -> Result<Option<Message>, StoreError>;

    /// Messages, newest first.
    async fn messages(&self, status: Option<MessageStatus>, page: Page<MessageId>) -> Result<Vec<Message>, StoreError>;

    /// Has messages of one transport sent by another: all that were not sent and are not being sent. Answers how many.
    async fn redirect_messages(&self, from: &str, to: &str) -> Result<u64, StoreError>;

    /// Makes a failed message due again, as if it had never been tried; `false` if it is unknown or has not failed.
    async fn retry_message(&self, id: MessageId) -> Result<bool, StoreError>;
}

/// What became of a message that was to be posted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// It was written.
    New(MessageId),
    /// A message of its key is there already.
    Known {
        /// The first message of the key.
        id: MessageId,
        /// What the provider called it, if it was sent.
        provider_id: Option<String>,
    },
}

/// Whose turn it is to send a message.
#[derive(Debug, Clone, PartialEq)]
pub enum Taken {
    /// Ours: it was taken.
    Ours(Message),
    /// Nobody's: it was sent.
    Sent {
        /// What the provider called it.
        provider_id: String,
    },
    /// Somebody else's, until then at the latest.
    Theirs {
        /// When their lease ends.
        until: DateTime<Utc>,
    },
}
