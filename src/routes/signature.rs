//! Signatures as Standard Webhooks describes them: an HMAC-SHA256 over id, timestamp and body, once for each secret.

use base64::Engine;
use base64::alphabet::STANDARD as ALPHABET;
use base64::engine::DecodePaddingMode::Indifferent;
use base64::engine::{GeneralPurpose, GeneralPurposeConfig};
use base64::prelude::BASE64_STANDARD;
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;

/// What a secret begins with that was made for webhooks.
const PREFIX: &str = "whsec_";

/// Base64 with or without its padding.
const LENIENT: GeneralPurpose =
    GeneralPurpose::new(&ALPHABET, GeneralPurposeConfig::new().with_decode_padding_mode(Indifferent));

/// How many secrets sign a webhook at the most: the old one and the new one, during a rotation.
pub(crate) const MAX_SECRETS: usize = 2;

/// Whether a secret can be used: one that begins like those made for webhooks has to be one.
///
/// # Errors
/// A sentence that says what to change.
pub(crate) fn check_secret(secret: &str) -> Result<(), String> {
    match secret.strip_prefix(PREFIX) {
        Some(encoded) if BASE64_STANDARD.decode(encoded).is_err() => {
            Err(format!("what follows {PREFIX} must be base64"))
        }
        _ => Ok(()),
    }
}

/// The value of `webhook-signature`: one signature per secret, so that a receiver may know the old one or the new one.
pub(crate) fn sign(secrets: &[String], id: &str, timestamp: i64, body: &str) -> String {
    let signed = format!("{id}.{timestamp}.{body}");
    let signatures = secrets.iter().map(|secret| {
        #[expect(clippy::expect_used, reason = "HMAC takes keys of any length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&key(secret)).expect("a key of any length");
        mac.update(signed.as_bytes());
        format!("v1,{}", BASE64_STANDARD.encode(mac.finalize().into_bytes()))
    });
    signatures.collect::<Vec<_>>().join(" ")
}

/// The key that a secret stands for, as the libraries of receivers read it: base64, with or without the prefix. What is
/// not base64 is the key itself.
fn key(secret: &str) -> Vec<u8> {
    let encoded = secret.strip_prefix(PREFIX).unwrap_or(secret);
    LENIENT.decode(encoded).unwrap_or_else(|_| secret.as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use standardwebhooks::Webhook;

    use super::*;

    const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

    #[test]
    fn signatures_are_those_of_the_reference_library() {
        let theirs = |secret: &str| Webhook::new(secret).unwrap().sign("msg_1", 1_700_000_000, b"{\"a\": 1}").unwrap();
        for secret in [SECRET, "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "whsec_c3dvcmRmaXNo", "whsec_c3dvcmRmaXNoMQ=="] {
            let ours = sign(&[secret.to_owned()], "msg_1", 1_700_000_000, "{\"a\": 1}");
            assert_eq!(ours, theirs(secret), "{secret}");
        }
        let plain = sign(&["sword fish".to_owned()], "msg_1", 1_700_000_000, "{\"a\": 1}");
        let theirs = Webhook::from_bytes(b"sword fish".to_vec()).unwrap().sign("msg_1", 1_700_000_000, b"{\"a\": 1}");
        assert_eq!(plain, theirs.unwrap());
    }

    #[test]
    fn two_secrets_sign_twice() {
        let both = sign(&[SECRET.to_owned(), "whsec_c3dvcmRmaXNo".to_owned()], "msg_1", 1, "{}");
        let each = [SECRET, "whsec_c3dvcmRmaXNo"].map(|secret| sign(&[secret.to_owned()], "msg_1", 1, "{}"));
        assert_eq!(both, each.join(" "));
    }

    #[test]
    fn a_secret_made_for_webhooks_has_to_be_one() {
        for fine in [SECRET, "swordfish", "whsec", "c3dvcmRmaXNo"] {
            assert_eq!(check_secret(fine), Ok(()), "{fine}");
        }
        assert!(check_secret("whsec_sword fish").is_err());
    }
}
