//! A value that can be used but not printed.

use std::fmt;

/// A secret: `Debug` and `Display` show only what may be seen of it.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret {
    value: String,
    shown: String,
}

impl Secret {
    /// A secret of which nothing is shown.
    pub fn hidden(value: impl Into<String>) -> Self {
        Self { value: value.into(), shown: "***".into() }
    }

    /// A URL of which all but the password is shown.
    pub fn url(value: impl Into<String>) -> Self {
        let value = value.into();
        let shown = punctual_store::redacted(&value);
        Self { value, shown }
    }

    /// The secret itself, for whoever connects with it.
    pub fn expose(&self) -> &str {
        &self.value
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.shown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_way_of_printing_shows_it() {
        for secret in [
            Secret::hidden("swordfish"),
            Secret::url("postgres://me:swordfish@db/app"),
            Secret::url("postgres://me@db/app?sslmode=require&password=swordfish"),
            Secret::url("me:swordfish@db"),
        ] {
            assert!(!format!("{secret} {secret:?} {secret:#?}").contains("swordfish"), "{secret}");
            assert!(secret.expose().contains("swordfish"));
        }
        assert_eq!(Secret::url("sqlite://punctual.db").to_string(), "sqlite://punctual.db");
        assert_eq!(Secret::url("postgres://me@db/a?x=1").to_string(), "postgres://me@db/a?x=1");
    }
}
