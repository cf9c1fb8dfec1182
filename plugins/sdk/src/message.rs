use serde::Serialize;

/// A message to somebody. [`Notifier`](crate::Notifier) sends it.
///
/// The dedupe key makes it one for good: a second message of the same key is the first, however often the work that sends it
/// is repeated, on whichever node.
#[derive(Debug, Clone)]
#[must_use]
pub struct Message {
    pub(crate) recipient: String,
    pub(crate) dedupe_key: String,
    pub(crate) channel: Channel,
    pub(crate) saying: Saying,
}

#[derive(Debug, Clone)]
pub(crate) enum Saying {
    Plain { subject: String, text: String },
    Template { slug: String, values: Result<serde_json::Value, String> },
}

/// What kind of way a message takes; which one exactly, the configuration says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Channel {
    /// To people: by e-mail, or whatever `NOTIFY_TRANSPORT` puts in its place.
    #[default]
    Email,
    /// To the webhook of the configuration.
    Webhook,
    /// To the queue of another service.
    Queue,
}

impl Channel {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Email, Self::Webhook, Self::Queue];

    /// The one word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Email => "email",
            Self::Webhook => "webhook",
            Self::Queue => "queue",
        }
    }

    /// The channel of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|channel| channel.as_str() == name)
    }
}

impl Message {
    /// A message with nothing to say yet.
    pub fn new(recipient: impl Into<String>, dedupe_key: impl Into<String>) -> Self {
        let saying = Saying::Plain { subject: String::new(), text: String::new() };
        Self { recipient: recipient.into(), dedupe_key: dedupe_key.into(), channel: Channel::default(), saying }
    }

    /// With what one of the plugin's templates says, its gaps filled with `values`.
    pub fn template(self, slug: impl Into<String>, values: impl Serialize) -> Self {
        let values = serde_json::to_value(values).map_err(|error| error.to_string());
        Self { saying: Saying::Template { slug: slug.into(), values }, ..self }
    }

    /// With this subject and this text, and nothing else.
    pub fn plain(self, subject: impl Into<String>, text: impl Into<String>) -> Self {
        Self { saying: Saying::Plain { subject: subject.into(), text: text.into() }, ..self }
    }

    /// By another channel than e-mail.
    pub fn through(self, channel: Channel) -> Self {
        Self { channel, ..self }
    }
}
