//! A message that a plugin wants sent: checked, and in the shape of the outbox.

use punctual_sdk::engine::Outgoing;

use crate::id::MessageId;
use crate::invalid::Invalid;
use crate::json::Json;
use crate::outbox::NewMessage;

/// The longest dedupe key, in characters: room for an address and a few ids.
const MAX_KEY: usize = 500;
/// The longest recipient, in characters; an e-mail address has at most 254.
const MAX_RECIPIENT: usize = 500;
/// The longest body, in bytes.
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// The message to be posted.
///
/// # Errors
/// Everything that is wrong with it.
pub fn new_message(message: Outgoing) -> Result<NewMessage, Invalid> {
    let Outgoing { dedupe_key, transport, recipient, content } = message;
    let mut invalid = Invalid::default();
    invalid.check("dedupeKey", check(&dedupe_key, MAX_KEY));
    invalid.check("recipient", check(&recipient, MAX_RECIPIENT));
    let body = serde_json::to_string(&content).map_err(|error| error.to_string());
    let body = invalid.check("body", body.and_then(read_body)).unwrap_or_else(Json::empty_object);
    invalid.or(NewMessage { id: MessageId::generate(), dedupe_key, transport, recipient, body })
}

fn check(text: &str, longest: usize) -> Result<(), String> {
    match text.chars().count() {
        0 => Err("must not be empty".into()),
        long if long > longest => Err(format!("must have at most {longest} characters, not {long}")),
        _ if text.contains(char::is_control) => Err("must not contain control characters".into()),
        _ => Ok(()),
    }
}

fn read_body(text: String) -> Result<Json, String> {
    if text.len() > MAX_BODY_BYTES {
        return Err(format!("has {} bytes, at most {MAX_BODY_BYTES} (1 MiB) are allowed", text.len()));
    }
    Json::parse(text).map_err(|error| error.to_string())
}

#[cfg(test)]
mod tests {
    use punctual_sdk::engine::Content;

    use super::*;

    fn outgoing(dedupe_key: &str, recipient: &str, text: &str) -> Outgoing {
        let content = Content { subject: "s".into(), text: text.into(), ..Content::default() };
        Outgoing { dedupe_key: dedupe_key.into(), transport: "log".into(), recipient: recipient.into(), content }
    }

    #[test]
    fn a_message_keeps_what_it_says() {
        let message = new_message(outgoing("k é", "ada@example.com", "Hällo")).unwrap();
        assert_eq!((message.dedupe_key.as_str(), message.transport.as_str()), ("k é", "log"));
        assert_eq!(message.body.as_str(), r#"{"subject":"s","text":"Hällo"}"#);
    }

    #[test]
    fn everything_wrong_is_named() {
        let fields = |message| match new_message(message) {
            Err(Invalid(errors)) => errors.iter().map(|error| error.field.clone()).collect::<Vec<_>>().join(" "),
            Ok(message) => panic!("{message:?}"),
        };
        assert_eq!(fields(outgoing("", "", "\0")), "dedupeKey recipient body");
        assert_eq!(fields(outgoing("a\nb", "ada@example.com\r\nBcc: eve@example.com", "x")), "dedupeKey recipient");
        assert_eq!(
            fields(outgoing(&"x".repeat(501), &"x".repeat(501), &"x".repeat(MAX_BODY_BYTES))),
            "dedupeKey recipient body"
        );
    }
}
