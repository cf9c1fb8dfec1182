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
/// `@` is hidden, and so is what is no port where one belongs: rather too much of a URL than a part of a password.
pub fn redacted(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        // Not a URL at all, such as `host=db password=secret`, has passwords in places of its own.
        let is_open = !url.contains('@') && !names_secret(url);
        return if is_open { without_secret_parameters(url) } else { "***".to_owned() };
    };
    let address = rest.rsplit_once('@').map_or(rest, |(_, address)| address);
    if names_secret(rest) || !has_port_or_none(address) {
        return format!("{scheme}://***");
    }
    let Some((user_info, host)) = rest.rsplit_once('@').filter(|(user_info, _)| user_info.contains(':')) else {
        return format!("{scheme}://{}", without_secret_parameters(rest));
    };
    let (user, hidden) = user_info.split_once(':').unwrap_or((user_info, ""));
    let shown = format!("{scheme}://{}:***@", without_secret_parameters(user));
    // The last `@` may stand in a password among the parameters, which then goes on behind it.
    if hidden.contains('?') && hidden.rsplit(['?', '&']).next().is_some_and(|last| is_secret(last) || is_mixed(last)) {
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

/// Whether what follows the `:` of the host can be a port; if not, or if there is no host before it, it may be a password.
fn has_port_or_none(address: &str) -> bool {
    let host = address.split(['/', '?', '#']).next().unwrap_or_default();
    // The colons between brackets are those of an IPv6 address.
    let (is_named, rest) = host.rsplit_once(']').map_or((false, host), |(_, rest)| (true, rest));
    let is_port = |port: &str| port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok();
    rest.split_once(':').is_none_or(|(name, port)| (is_named || !name.is_empty()) && (port.is_empty() || is_port(port)))
}

/// The address as it is, and its parameters without passwords.
fn without_secret_parameters(address: &str) -> String {
    match address.split_once('?') {
        Some((address, parameters)) => format!("{address}?{}", without_secrets(parameters)),
        None => address.to_owned(),
    }
}

/// Parameters, and of each that is a password only its name; nothing where it cannot be told where one begins.
fn without_secrets(parameters: &str) -> String {
    if parameters.split('&').any(is_mixed) {
        return "***".to_owned();
    }
    let hide = |parameter: &str| match parameter.split_once('=') {
        Some((name, _)) if is_secret(parameter) => format!("{name}=***"),
        _ => parameter.to_owned(),
    };
    parameters.split('&').map(hide).collect::<Vec<_>>().join("&")
}

/// Whether a parameter has the name of a password, a key or a token, or one that is written so that it cannot be told.
fn is_secret(parameter: &str) -> bool {
    let name = parameter.split('=').next().unwrap_or_default();
    name.contains('%') || has_name_of_secret(name)
}

/// Whether the value of a parameter holds another one that is a password: they were separated by something else than `&`.
fn is_mixed(parameter: &str) -> bool {
    let value = parameter.split_once('=').map_or("", |(_, value)| value);
    let holds_another = value.contains('=') || value.to_ascii_lowercase().contains("%3d");
    holds_another && has_name_of_secret(value) && !is_secret(parameter)
}

fn has_name_of_secret(text: &str) -> bool {
    ["pass", "pwd", "key", "token", "secret"].iter().any(|word| text.to_ascii_lowercase().contains(word))
}

fn bad_url(url: &str, reason: impl ToString) -> ConnectError {
    let parameters = url.split_once('?').map_or("", |(_, parameters)| parameters);
    let reason = match parameters.split('&').any(is_mixed) {
        // It may quote a value.
        true => "parameters are separated by &".to_owned(),
        false => reason.to_string(),
    };
    ConnectError::BadUrl { url: redacted(url), reason }
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
            ("redis://me@cache:secret", "redis://***"),
            ("redis://me@cache:secret/0", "redis://***"),
            ("redis://:123456", "redis://***"),
            ("redis://me@:12345", "redis://***"),
            ("redis://me:123456", "redis://***"),
            ("redis://me:secret@cache:secret", "redis://***"),
            ("redis://:secret@cache:6379", "redis://:***@cache:6379"),
            ("redis://me@[::1]:6379/0", "redis://me@[::1]:6379/0"),
            ("redis://[::1]:secret", "redis://***"),
            ("redis://cache:", "redis://cache:"),
            ("postgres://me@/app?host=/run", "postgres://me@/app?host=/run"),
            ("postgres://me@db/app?sslmode=require;password=secret", "postgres://me@db/app?***"),
            ("postgres://me@db/app?sslmode=require;Pwd%3Dsecret", "postgres://me@db/app?***"),
            ("postgres://me@db/app?x=1&sslmode=require password=sec@ret", "postgres://me@db/app?***"),
            ("postgres://me:pa@db/app?sslmode=require;password=sec@ret&x=1", "postgres://me:***@***&x=1"),
            ("postgres://me@db/app?x=1&password=pass=secret", "postgres://me@db/app?x=1&password=***"),
            ("postgres://db/app?options=-csearch_path=app", "postgres://db/app?options=-csearch_path=app"),
            ("postgres:/app?sslmode=require;password=secret", "postgres:/app?***"),
            ("sqlite://punctual.db?mode=rwc;password=secret", "sqlite://punctual.db?***"),
            ("rediss://me:secret@db:1/0?pass=secret", "rediss://me:***@db:1/0?pass=***"),
            ("sqlite://punctual.db", "sqlite://punctual.db"),
            ("nonsense", "nonsense"),
        ] {
            assert_eq!(redacted(url), shown);
        }
    }

    #[tokio::test]
    async fn what_is_wrong_with_a_url_is_said_without_its_passwords() {
        for (url, reason) in [
            ("postgres://me@db/app?sslmode=require;password=secret", "separated by &"),
            ("postgres://me@db/app?sslmode=require%3Bpassword%3Dsecret", "separated by &"),
            ("sqlite://punctual.db?mode=rwc;password=secret", "separated by &"),
            ("mysql://me@db/app?x=1;password=secret", "separated by &"),
            ("postgres://me:secret@db/app?sslmode=never", "never"),
        ] {
            let error = connect(url, Options::default()).await.err().unwrap().to_string();
            assert!(error.contains(reason) && !error.contains("secret"), "{error}");
        }
    }

    #[tokio::test]
    async fn an_unknown_scheme_is_refused_with_what_to_use() {
        let error = connect("mysql://me:secret@db/app", Options::default()).await.err().unwrap().to_string();
        assert!(error.contains("sqlite://FILE") && !error.contains("secret"), "{error}");
    }
}
