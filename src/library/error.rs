//! Why a call to the library was refused or failed.

use std::path::PathBuf;

use punctual_actors::TreeError;
use punctual_domain::invalid::Invalid;
use punctual_domain::store::{MigrationError, StoreError};
use punctual_domain::time::ZoneDatabaseError;
use punctual_domain::topic::TopicError;
use punctual_store::ConnectError;

use crate::engine::EngineError;
use crate::plugins::BadPlugin;

/// Why a call was refused or failed. Unless it says so, nothing was written.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum Error {
    /// What was given is not acceptable: every bad field, by its name in the API, with what to change.
    #[error("{0}")]
    Invalid(Invalid),
    /// There is no such task or schedule.
    #[error("there is no such task or schedule")]
    NotFound,
    /// The client request id made a task or schedule before, and never makes another.
    #[error("the client request id {0:?} was used before")]
    ClientRequestIdInUse(String),
    /// Another live task of the topic has the dedupe key.
    #[error("another live task of the topic has the dedupe key {0:?}")]
    DedupeKeyInUse(String),
    /// Another schedule has the name.
    #[error("another schedule has the name {0:?}")]
    NameTaken(String),
    /// The task has ended, and ended tasks never change.
    #[error("the task has ended")]
    AlreadyEnded,
    /// Only failed tasks can be retried.
    #[error("the task has not failed")]
    NotFailed,
    /// The transaction belongs to another kind of database than this Punctual's.
    #[error("the transaction is one of {given}, and this Punctual keeps its tasks in {ours}")]
    WrongDatabase {
        /// The transaction's.
        given: &'static str,
        /// Punctual's.
        ours: &'static str,
    },
    /// The database is away, too slow, or full. Try again later; a write may or may not have happened.
    #[error("the database is not available: {0}")]
    Unavailable(String),
    /// The actors failed more often than can be put right from inside: start again.
    #[error("the actors gave up")]
    GaveUp,
    /// What is stored cannot be understood: somebody must act.
    #[error("the store is broken: {0}")]
    Broken(String),
}

impl From<StoreError> for Error {
    fn from(error: StoreError) -> Self {
        match error {
            StoreError::Unavailable(reason) => Self::Unavailable(reason),
            StoreError::Moved => Self::Unavailable(error.to_string()),
            StoreError::NotFound => Self::NotFound,
            StoreError::ClientRequestIdInUse(id) => Self::ClientRequestIdInUse(id),
            StoreError::DedupeKeyInUse(key) => Self::DedupeKeyInUse(key),
            StoreError::NameTaken(name) => Self::NameTaken(name),
            StoreError::AlreadyEnded => Self::AlreadyEnded,
            StoreError::NotFailed => Self::NotFailed,
            // No call of the library leads to these.
            StoreError::IdempotencyKeyReused
            | StoreError::VersionMismatch(_)
            | StoreError::UnknownCalendar(_)
            | StoreError::TooManyFires(_)
            | StoreError::CalendarInUse(_)
            | StoreError::HandlerRegistered(_) => Self::Broken(error.to_string()),
            StoreError::Broken(reason) => Self::Broken(reason),
        }
    }
}

impl From<Invalid> for Error {
    fn from(invalid: Invalid) -> Self {
        Self::Invalid(invalid)
    }
}

/// Why Punctual cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The folder of zone data cannot be used.
    #[error("the zone data in {folder} cannot be used: {error}")]
    ZoneData {
        /// The folder.
        folder: PathBuf,
        /// Why.
        error: ZoneDatabaseError,
    },
    /// A plugin is broken.
    #[error(transparent)]
    Plugin(#[from] BadPlugin),
    /// A handler was given for what cannot be a topic.
    #[error("there can be no handler for this: {0}")]
    Topic(#[from] TopicError),
    /// A webhook was given that cannot be one.
    #[error("the topic {topic:?} cannot be served by that webhook: {error}")]
    Webhook {
        /// The topic.
        topic: String,
        /// Why, field by field.
        error: String,
    },
    /// A private network was given for webhooks that is none.
    #[error("{network:?} is no network for webhooks, expected {expected}")]
    WebhookNetwork {
        /// What was given.
        network: String,
        /// What was expected.
        expected: String,
    },
    /// No webhook could be sent.
    #[error("webhooks cannot be sent: {0}")]
    Webhooks(String),
    /// The database cannot be used.
    #[error("the database {database} cannot be used: {error}")]
    Database {
        /// Its URL, without the password.
        database: String,
        /// Why.
        error: ConnectError,
    },
    /// A plugin's own tables cannot be brought up to date.
    #[error(transparent)]
    Migration(#[from] MigrationError),
    /// The database went away meanwhile.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The actors cannot be started.
    #[error(transparent)]
    Actors(#[from] TreeError),
}

impl From<EngineError> for BuildError {
    fn from(error: EngineError) -> Self {
        match error {
            EngineError::Store(error) => Self::Store(error),
            EngineError::Actors(error) => Self::Actors(error),
        }
    }
}
