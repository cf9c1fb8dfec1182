use std::fmt;
use std::sync::Arc;

use uuid::Uuid;

use crate::engine::{Content, Engine, Outgoing};
use crate::message::Saying;
use crate::template::{Rendered, TemplateError};
use crate::{Channel, Error, Message, Transaction};

/// Sends messages for a plugin: later, with what a transaction writes, or at once.
///
/// See the chapter on [messages](crate#messages).
#[derive(Clone)]
pub struct Notifier {
    plugin: &'static str,
    engine: Arc<dyn Engine>,
}

/// Why a message was not sent.
#[derive(Debug, thiserror::Error)]
pub enum NotifyError {
    /// Its template cannot be filled: trying again does not help.
    #[error(transparent)]
    Template(#[from] TemplateError),
    /// It cannot be sent as it is, or not by that channel: trying again does not help.
    #[error("{0}")]
    Refused(String),
    /// It could not be sent this time.
    #[error("{0}")]
    NotSent(String),
    /// The database did not do it.
    #[error(transparent)]
    Unavailable(Error),
}

impl NotifyError {
    /// Whether trying again would not help.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::Template(_) | Self::Refused(_))
    }
}

impl Notifier {
    pub(crate) fn new(plugin: &'static str, engine: Arc<dyn Engine>) -> Self {
        Self { plugin, engine }
    }

    /// Writes a message in a transaction, and answers its id: it is sent once that is committed, as often as it takes; a
    /// rollback makes it never have been. A key that was used before writes nothing, and answers the first one's id.
    ///
    /// # Errors
    /// When it cannot be sent as it is; roll the transaction back then.
    pub async fn enqueue(&self, transaction: &mut Transaction, message: Message) -> Result<Uuid, NotifyError> {
        let outgoing = self.outgoing(message)?;
        transaction.post(outgoing).await
    }

    /// Sends a message now, and answers what the provider calls it. A key that was delivered before sends nothing, and
    /// answers what the provider called the first.
    ///
    /// What could not be sent is not tried again by itself: that is for the caller to decide, who calls again with the same
    /// key. It can be seen, and tried again, in the outbox. Call it outside of transactions.
    ///
    /// A key that is known sends what was stored with it the first time, to the recipient of that time, whatever the message
    /// says now. Where one of them may change in between, such as an address in the configuration, it belongs in the key.
    ///
    /// # Errors
    /// When it could not be sent.
    pub async fn deliver(&self, message: Message) -> Result<String, NotifyError> {
        let outgoing = self.outgoing(message)?;
        self.engine.deliver(outgoing).await
    }

    /// What sends messages of a channel here, such as `smtp`; `None` if nothing does.
    pub fn provider(&self, channel: Channel) -> Option<String> {
        self.engine.transport(channel).map(str::to_owned)
    }

    fn outgoing(&self, message: Message) -> Result<Outgoing, NotifyError> {
        let Message { recipient, dedupe_key, channel, saying } = message;
        let content = match saying {
            Saying::Plain { subject, text } => Content { subject, text, ..Content::default() },
            Saying::Template { slug, values } => {
                let unknown = || TemplateError::Unknown(slug.clone());
                let template = self.engine.template(self.plugin, &slug).ok_or_else(unknown)?;
                let values = values.map_err(|error| TemplateError::Broken { slug: template.slug, error })?;
                let Rendered { subject, text, html } = template.render(&values)?;
                Content { subject, text, html, template_slug: Some(slug), data: Some(values) }
            }
        };
        let transport = self.engine.transport(channel).ok_or_else(|| {
            let channel = channel.as_str();
            NotifyError::Refused(format!("nothing is set up here that sends messages by {channel}"))
        })?;
        Ok(Outgoing { dedupe_key, transport: transport.to_owned(), recipient, content })
    }
}

impl fmt::Debug for Notifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Notifier").field("plugin", &self.plugin).finish_non_exhaustive()
    }
}
