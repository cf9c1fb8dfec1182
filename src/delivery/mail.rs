//! A message as an e-mail: who, to whom, and under which id. Nothing of it can become a header of its own.

use chrono::{DateTime, Utc};
use lettre::message::Mailbox;
use punctual_domain::delivery::DeliveryError;
use punctual_domain::outbox::{Content, Message};
use sha2::{Digest, Sha256};

use super::content;

/// An e-mail to one recipient.
pub(super) struct Mail {
    pub(super) from: Mailbox,
    pub(super) to: Mailbox,
    pub(super) subject: String,
    pub(super) text: String,
    pub(super) html: Option<String>,
    /// The same on every try, so that repeats are known as such.
    pub(super) message_id: String,
    /// When it was written, not when it is tried.
    pub(super) written_at: DateTime<Utc>,
}

impl Mail {
    /// The e-mail that a message is.
    pub(super) fn of(message: &Message, from: &Mailbox) -> Result<Self, DeliveryError> {
        let Content { subject, text, html, .. } = content(message)?;
        Ok(Self {
            from: from.clone(),
            to: recipient(&message.recipient)?,
            subject: one_line(&subject),
            text,
            html,
            message_id: message_id(&message.dedupe_key, from),
            written_at: message.created_at,
        })
    }
}

fn recipient(text: &str) -> Result<Mailbox, DeliveryError> {
    let never = |why: &str| DeliveryError::never(format!("the recipient {text:?} is not an e-mail address: {why}"));
    if text.contains(char::is_control) {
        return Err(never("it has control characters"));
    }
    text.parse().map_err(|error: lettre::address::AddressError| never(&error.to_string()))
}

/// A header's value is one line.
fn one_line(text: &str) -> String {
    let words: Vec<_> = text.split(char::is_control).filter(|part| !part.is_empty()).collect();
    words.join(" ")
}

/// Follows from the dedupe key alone, as long as the sender is the same.
fn message_id(dedupe_key: &str, from: &Mailbox) -> String {
    let digest = Sha256::digest(format!("punctual message {dedupe_key}"));
    let name: String = digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let domain = Some(from.email.domain()).filter(|domain| domain.is_ascii()).unwrap_or("localhost");
    format!("<{name}@{domain}>")
}

#[cfg(test)]
pub(super) mod tests {
    use punctual_domain::id::{Epoch, MessageId};
    use punctual_domain::json::Json;
    use punctual_domain::outbox::MessageStatus;

    use super::*;

    /// A message to this recipient, about this.
    pub(in crate::delivery) fn message(recipient: &str, subject: &str) -> Message {
        let said = Content { subject: subject.into(), text: "Hello".into(), ..Content::default() };
        Message {
            id: MessageId::generate(),
            dedupe_key: "welcome__7".into(),
            transport: "smtp".into(),
            recipient: recipient.into(),
            body: Json::parse(serde_json::to_string(&said).unwrap()).unwrap(),
            status: MessageStatus::Pending,
            attempt: 1,
            epoch: Epoch(1),
            next_attempt_at: DateTime::UNIX_EPOCH,
            provider_id: None,
            error: None,
            created_at: "2026-11-16T14:30:00Z".parse().unwrap(),
            completed_at: None,
        }
    }

    fn from() -> Mailbox {
        "Punctual <punctual@example.com>".parse().unwrap()
    }

    #[test]
    fn the_id_follows_from_the_dedupe_key_and_nothing_else() {
        let id = |recipient: &str, subject: &str| Mail::of(&message(recipient, subject), &from()).unwrap().message_id;
        let first = id("ada@example.com", "one");
        assert_eq!(first, id("bob@example.org", "two"));
        assert!(first.ends_with("@example.com>") && first.len() == "<@example.com>".len() + 32, "{first}");
        let other = Message { dedupe_key: "welcome__8".into(), ..message("ada@example.com", "one") };
        assert_ne!(first, Mail::of(&other, &from()).unwrap().message_id);
    }

    #[test]
    fn a_subject_is_one_line_whatever_is_in_it() {
        for (subject, line) in [
            ("Hello", "Hello"),
            ("Hello\r\nBcc: eve@example.com", "Hello Bcc: eve@example.com"),
            ("\n\rHello\u{1}\u{7f}you\u{85}", "Hello you"),
            ("Grüße 🎉", "Grüße 🎉"),
        ] {
            assert_eq!(Mail::of(&message("ada@example.com", subject), &from()).unwrap().subject, line);
        }
    }

    #[test]
    fn what_plugins_take_for_an_address_can_be_sent_to() {
        let atom = "!#$%&'*+-/=?^_`{|}~aZ9é中";
        let mut taken = 0;
        for local in ["a", "a.b", "a..b", ".a", "a.", atom, "a b", "\"a\"", "a@b", &"a".repeat(64), &"a".repeat(65)] {
            for domain in [
                "x",
                "x.com",
                "x..com",
                ".x",
                "x.",
                "-x.y",
                "x-.y",
                "a-b.c",
                "x_y",
                "bücher.example",
                "xn--a.b",
                "[::1]",
                "1.2",
            ] {
                let address = format!("{local}@{domain}");
                let mut fields = punctual_sdk::Fields::of(serde_json::json!({ "email": address }));
                if fields.email("email").is_some() {
                    taken += 1;
                    assert!(Mail::of(&message(&address, "x"), &from()).is_ok(), "{address}");
                }
            }
        }
        assert_eq!(taken, 4 * 6);
    }

    #[test]
    fn a_recipient_is_one_address() {
        for fine in ["ada@example.com", "Ada <ada@example.com>", "søren@example.com", "ada@bücher.example"] {
            assert!(Mail::of(&message(fine, "x"), &from()).is_ok(), "{fine}");
        }
        for bad in [
            "",
            "ada",
            "@example.com",
            "ada@",
            "ada@example.com, eve@example.com",
            "ada@example.com\r\nBcc: eve@example.com",
            "Ada\nBcc: eve@example.com <ada@example.com>",
            "ada@example.com\0",
        ] {
            let refused = Mail::of(&message(bad, "x"), &from()).err();
            assert!(matches!(refused, Some(DeliveryError::Never { .. })), "{bad:?}");
        }
    }
}
