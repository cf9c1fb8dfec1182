//! Punctual's stores: SQLite for one machine, PostgreSQL for many, behind one trait.
//!
//! [`connect`] picks by the URL. Both write the same tables (`migrations/`), carry out the same moves
//! (`punctual_domain::task`), and pass the same conformance suite (`tests/`). The files in `sqlite/` and `postgres/` have
//! the same names, and so do the queries, so that two dialects can be laid side by side.

mod claimed;
#[cfg(test)]
mod filters;
mod instant;
mod migration;
mod plugins;
pub mod postgres;
mod progress;
mod pulls;
mod ranges;
mod scratch;
pub mod sqlite;
mod text;

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::clock::Clock;
use punctual_domain::news::News;
use punctual_domain::store::{Store, StoreError};

pub use migration::{MIGRATIONS, Migration, SchemaState};
pub use scratch::Scratch;

/// How to connect.
#[derive(Clone)]
pub struct Options {
    /// A clock that takes the place of the database's own; for tests that move time.
    pub clock: Option<Arc<dyn Clock>>,
    /// Whether the schema is brought up to date.
    pub migrate: Migrate,
    /// Whether anything can be written.
    pub access: Access,
    /// The most connections to hold (PostgreSQL), or readers beside the writer (SQLite).
    pub connections: u32,
    /// How long a statement may take before it counts as lost.
    pub deadline: Duration,
    /// Told what is announced to other nodes, for those who tell them in another way too (PostgreSQL).
    pub announced: Option<Announced>,
}

/// Hears of announcements; must be quick.
pub type Announced = Arc<dyn Fn(&News) + Send + Sync>;

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: None,
            migrate: Migrate::Run,
            access: Access::Full,
            connections: 10,
            deadline: Duration::from_secs(30),
            announced: None,
        }
    }
}

/// Whether connecting changes the schema.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Migrate {
    /// Bring it up to date.
    Run,
    /// Refuse a schema that is not up to date.
    Check,
}

/// What a store may do with its database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everything. A SQLite file belongs to one process then.
    Full,
    /// Read, and nothing else: the schema is checked and left as it is, every write is refused, and a SQLite file may be in
    /// use by the process that owns it.
    Look,
}

/// Why a store cannot be used at all.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The URL names no database we know.
    #[error("{url:?} is not a database URL: use sqlite://FILE or postgres://USER@HOST/DATABASE ({reason})")]
    BadUrl {
        /// The URL, without its password.
        url: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The database works, but not in a way that keeps our promises, or it belongs to somebody else.
    #[error("{0}")]
    Refused(String),
    /// Another process has the database to itself.
    #[error("{0}")]
    InUse(String),
    /// The database did not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A database that was opened, and can be migrated before it is used.
///
/// # Errors
/// When the database cannot be reached, or cannot keep Punctual's promises.
pub async fn connect(url: &str, options: Options) -> Result<Arc<dyn Store>, ConnectError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => Ok(Arc::new(sqlite::SqliteStore::connect(url, options).await?)),
        Some("postgres" | "postgresql") => Ok(Arc::new(postgres::PostgresStore::connect(url, options).await?)),
        _ => Err(bad_url(url, "unknown scheme")),
    }
}

/// What the schema of the database at `url` is, without changing anything.
///
/// # Errors
/// When the database cannot be reached.
pub async fn schema_state(url: &str) -> Result<SchemaState, ConnectError> {
    match url.split_once(':').map(|(scheme, _)| scheme) {
        Some("sqlite") => sqlite::schema_state(url).await,
        Some("postgres" | "postgresql") => postgres::schema_state(url).await,
        _ => Err(bad_url(url, "unknown scheme")),
    }
}

/// The URL with its passwords hidden, fit for logs and errors.
///
/// People paste passwords as they are, with `/`, `?`, `#` and `@` in them. So everything from the first `:` to the last
/// `@` is hidden: rather too much of a URL than a part of a password.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not a URL at all, such as `host=db password=secret`, has passwords in places of its own.
        let is_open = !url.contains('@') && !names_secret(url);
        return if is_open { without_secret_parameters(url) } else { "***".to_owned() };
    };
    if names_secret(rest) || !rest.contains('@') && !has_port_or_none(rest) {
        return format!("{scheme}://***");
    }
    let Some((user_info, host)) = rest.rsplit_once('@').filter(|(user_info, _)| user_info.contains(':')) else {
        return format!("{scheme}://{}", without_secret_parameters(rest));
    };
    let (user, hidden) = user_info.split_once(':').unwrap_or((user_info, ""));
    let shown = format!("{scheme}://{}:***@", without_secret_parameters(user));
    // The last `@` may stand in a password among the parameters, which then goes on behind it.
    if hidden.contains('?') && hidden.rsplit(['?', '&']).next().is_some_and(is_secret) {
        let others = host.split_once('&').map(|(_, others)| format!("&{}", without_secrets(others)));
        return shown + "***" + &others.unwrap_or_default();
    }
    shown + &without_secret_parameters(host)
}

/// Whether a password is named before the parameters, where none belongs: somebody mixed the ways to write it.
fn names_secret(text: &str) -> bool {
    let address = text.split('?').next().unwrap_or_default();
    address.contains('=') && is_secret(&address.replace('=', " "))
}

/// Whether what follows the `:` of the host can be a port; if not, it may be the password of a URL that has no host.
fn has_port_or_none(rest: &str) -> bool {
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = host.rsplit_once(']').map_or(host, |(_, port)| port);
    host.split_once(':').is_none_or(|(_, port)| port.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The address as it is, and its parameters without passwords.
fn without_secret_parameters(address: &str) -> String {
    match address.split_once('?') {
        Some((address, parameters)) => format!("{address}?{}", without_secrets(parameters)),
        None => address.to_owned(),
    }
}

/// Parameters, and of each that is a password only its name.
fn without_secrets(parameters: &str) -> String {
    let hide = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_secret(parameter) => format!("{name}=***"),
        _ => parameter.to_owned(),
    };
    parameters.split('&').map(hide).collect::<Vec<_>>().join("&")
}

/// Whether a parameter has the name of a password, a key or a token, or one that is written so that it cannot be told.
fn is_secret(parameter: &str) -> bool {
    const WORDS: [&str; 5] = ["pass", "pwd", "key", "token", "secret"];
    let name = parameter.split('=').next().unwrap_or_default();
    name.contains('%') || WORDS.iter().any(|word| name.to_ascii_lowercase().contains(word))
}

fn bad_url(url: &str, reason: impl ToString) -> ConnectError {
    ConnectError::BadUrl { url: redacted(url), reason: reason.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passwords_are_hidden() {
        for (url, shown) in [
            ("postgres://me:secret@db:5432/app?x=1", "postgres://me:***@db:5432/app?x=1"),
            ("postgres://me:p@ss@db/app", "postgres://me:***@db/app"),
            ("postgres://me@db/app", "postgres://me@db/app"),
            ("postgres://db/app?user=me&password=secret&x=1", "postgres://db/app?user=me&password=***&x=1"),
            ("postgres://me:pa/ss@db/app", "postgres://me:***@db/app"),
            ("postgres://me:se?cret@db/app", "postgres://me:***@db/app"),
            ("postgres://me:12/34@db:5432/app?x=1", "postgres://me:***@db:5432/app?x=1"),
            ("postgres://:se#cr@et@db", "postgres://:***@db"),
            ("postgres://me@db:5432/app", "postgres://me@db:5432/app"),
            ("postgres://db/app?sslpassword=a?b&x=1", "postgres://db/app?sslpassword=***&x=1"),
            ("postgres://db/app?Pass=secret", "postgres://db/app?Pass=***"),
            ("postgres://db/app?pass%77ord=secret", "postgres://db/app?pass%77ord=***"),
            (
                "https://lab/results?apiKey=secret&access_token=secret&x=1",
                "https://lab/results?apiKey=***&access_token=***&x=1",
            ),
            ("postgres://db/app?keepalives=1", "postgres://db/app?keepalives=1"),
            ("postgres://db/app?password=se@cret", "postgres://db/app?password=***"),
            ("postgres://db:5432/app?password=se@cret&x=1", "postgres://db:***@***&x=1"),
            ("postgres:/app?password=secret", "postgres:/app?password=***"),
            ("me:secret@db", "***"),
            ("host=db password=secret", "***"),
            ("Server=db;Pwd=secret;", "***"),
            ("postgres://me:secret", "postgres://***"),
            ("redis://:secret", "redis://***"),
            ("postgres://me:secret:5432/app", "postgres://***"),
            ("postgres://me:x@db/app password=secret", "postgres://***"),
            ("postgres://db/app;password=secret", "postgres://***"),
            ("postgres://[::1]/app", "postgres://[::1]/app"),
            ("postgres://[::1]:5432/app", "postgres://[::1]:5432/app"),
            ("user=me;Password=secret", "***"),
            ("rediss://me:secret@db:1/0?pass=secret", "rediss://me:***@db:1/0?pass=***"),
            ("sqlite://punctual.db", "sqlite://punctual.db"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_refused_with_what_to_use() {
        let error = connect("mysql://me:secret@db/app", Options::default()).await.err().unwrap().to_string();
        assert!(error.contains("sqlite://FILE") && !error.contains("secret"), "{error}");
    }
}
