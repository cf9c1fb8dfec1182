//! API keys as they are made: 256 bits of chance that are shown once, and kept as a hash.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, Utc};
use punctual_domain::id::KeyId;
use punctual_domain::key::{ApiKey, Role};
use punctual_domain::topic::TopicPattern;
use sha2::{Digest, Sha256};

use crate::config::Secret;

/// A new key and what is stored of it.
pub(crate) struct NewKey {
    /// What its bearer sends; shown once.
    pub(crate) secret: Secret,
    pub(crate) stored: ApiKey,
}

impl NewKey {
    /// Makes a key.
    ///
    /// # Errors
    /// When the machine has no randomness to give.
    pub(crate) fn make(
        name: String,
        role: Role,
        topics: Vec<TopicPattern>,
        created_at: DateTime<Utc>,
    ) -> Result<Self, String> {
        let mut chance = [0; 32];
        let random = rustls::crypto::ring::default_provider().secure_random;
        random.fill(&mut chance).map_err(|_| "the machine gives no random numbers".to_owned())?;
        let secret = format!("pk_{}", URL_SAFE_NO_PAD.encode(chance));
        let hash = hash(&secret);
        let stored = ApiKey { id: KeyId::generate(), name, role, topics, hash, created_at, revoked_at: None };
        Ok(Self { secret: Secret::hidden(secret), stored })
    }
}

/// What is stored of a key.
pub(crate) fn hash(secret: &str) -> [u8; 32] {
    Sha256::digest(secret).into()
}

/// Whether two hashes are the same, found out in the same time wherever they differ.
pub(crate) fn is_same(one: &[u8; 32], other: &[u8; 32]) -> bool {
    let difference = one.iter().zip(other).fold(0, |difference, (a, b)| difference | (a ^ b));
    std::hint::black_box(difference) == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_long_differ_and_are_found_by_their_hash() {
        let make = || NewKey::make("ops".into(), Role::Admin, Vec::new(), Utc::now()).unwrap();
        let (one, two) = (make(), make());
        assert!(one.secret.expose().starts_with("pk_") && one.secret.expose().len() == 46);
        assert_ne!(one.secret.expose(), two.secret.expose());
        assert_eq!(hash(one.secret.expose()), one.stored.hash);
        assert!(is_same(&one.stored.hash, &one.stored.hash) && !is_same(&one.stored.hash, &two.stored.hash));
        assert!(!format!("{:?}", one.secret).contains(one.secret.expose()));
    }
}
