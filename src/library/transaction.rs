//! Writing tasks in a transaction of the caller's own.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::store::{Created, Store, StoreError};
use punctual_domain::task::NewTask;
use sqlx::{Postgres, Sqlite, Transaction};

/// Which kind of database.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// SQLite.
    Sqlite,
    /// PostgreSQL.
    Postgres,
}

impl Kind {
    /// The kind that a database URL leads to; one that leads nowhere is refused by whoever connects.
    pub(super) fn of(url: &str) -> Self {
        if url.starts_with("sqlite:") { Self::Sqlite } else { Self::Postgres }
    }

    /// Its name, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// A transaction that tasks can be written in: sqlx's own, on PostgreSQL or SQLite.
pub trait CallersTransaction: private::Insert {}

impl CallersTransaction for Transaction<'_, Postgres> {}
impl CallersTransaction for Transaction<'_, Sqlite> {}

/// Nobody else's transactions can be written in, so nobody else can say so.
pub(super) mod private {
    use super::*;

    #[async_trait]
    pub trait Insert: Send {
        const KIND: Kind;

        /// Writes tasks; `given` takes the place of the database's present instant.
        async fn insert(
            &mut self,
            store: &dyn Store,
            given: Option<DateTime<Utc>>,
            tasks: Vec<NewTask>,
        ) -> Result<Vec<Created>, StoreError>;
    }

    #[async_trait]
    impl Insert for Transaction<'_, Postgres> {
        const KIND: Kind = Kind::Postgres;

        async fn insert(
            &mut self,
            _: &dyn Store,
            given: Option<DateTime<Utc>>,
            tasks: Vec<NewTask>,
        ) -> Result<Vec<Created>, StoreError> {
            let created = punctual_store::postgres::insert_tasks(self, tasks, given).await?;
            // There is no later moment that we would see.
            punctual_store::postgres::announce_tasks(self).await?;
            Ok(created)
        }
    }

    #[async_trait]
    impl Insert for Transaction<'_, Sqlite> {
        const KIND: Kind = Kind::Sqlite;

        async fn insert(
            &mut self,
            store: &dyn Store,
            _: Option<DateTime<Utc>>,
            tasks: Vec<NewTask>,
        ) -> Result<Vec<Created>, StoreError> {
            // The store's clock never goes backwards, and is the given one if there is one.
            punctual_store::sqlite::insert_tasks(self, tasks, store.now().await?).await
        }
    }
}
