//! Brings the schema up to date.

use chrono::{DateTime, Utc};
use punctual_domain::store::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};

use super::file::{self, Place};
use super::rows::{Columns, micros};
use super::{broken, tuned};
use crate::migration::{Applied, checksum};
use crate::{ConnectError, Migration, SchemaState};

/// What the schema of the file at `url` is. Creates nothing, and works while a process uses the file.
///
/// # Errors
/// When the file cannot be read.
pub async fn schema_state(url: &str) -> Result<SchemaState, ConnectError> {
    let path = match Place::of(url)? {
        Place::Memory => return Ok(SchemaState::EMPTY),
        Place::File(path) if !path.exists() => return Ok(SchemaState::EMPTY),
        Place::File(path) => path,
    };
    let options = tuned(SqliteConnectOptions::new().filename(&path)).read_only(true);
    let mut connection = options.connect().await.map_err(|error| file::cannot_open(&path, error))?;
    let state = state(&mut connection).await;
    // A failed farewell changes nothing: the connection is gone either way.
    let _ = connection.close().await;
    state
}

/// What the schema is: versions, and that what was applied is what we know.
pub(super) async fn state(connection: &mut SqliteConnection) -> Result<SchemaState, ConnectError> {
    let exists: bool =
        sqlx::query_scalar("SELECT count(*) > 0 FROM sqlite_schema WHERE type = 'table' AND name = 'punctual_schema'")
            .fetch_one(&mut *connection)
            .await
            .map_err(broken)?;
    if !exists {
        return Ok(SchemaState::EMPTY);
    }
    let rows = sqlx::query("SELECT version, checksum, oldest_compatible FROM punctual_schema ORDER BY version")
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let applied = rows
        .iter()
        .map(|row| {
            let mut columns = Columns::of(row);
            Ok(Applied { version: columns.take()?, checksum: columns.take()?, oldest_compatible: columns.take()? })
        })
        .collect::<Result<Vec<_>, StoreError>>()?;
    SchemaState::of(applied, |migration| migration.sqlite)
}

/// Refuses a schema that is not up to date, or too new for us.
pub(super) async fn check(connection: &mut SqliteConnection) -> Result<(), ConnectError> {
    let state = state(connection).await?;
    state.check_not_newer().and_then(|()| state.check_complete()).map_err(ConnectError::Refused)
}

/// Applies what is missing, in one transaction.
pub(super) async fn run(connection: &mut SqliteConnection, now: DateTime<Utc>) -> Result<(), ConnectError> {
    let found = state(connection).await?;
    found.check_not_newer().map_err(ConnectError::Refused)?;
    if found.missing().next().is_none() {
        return Ok(());
    }
    let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.map_err(broken)?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS punctual_schema (
            version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, checksum TEXT NOT NULL,
            oldest_compatible INTEGER NOT NULL, applied_at INTEGER NOT NULL
        ) STRICT",
    )
    .execute(&mut *transaction)
    .await
    .map_err(broken)?;
    // Looked at again inside the transaction: somebody may have been first.
    let found = state(&mut transaction).await?;
    for migration in found.missing() {
        apply(&mut transaction, migration, now).await?;
    }
    transaction.commit().await.map_err(broken)?;
    if found.version < SchemaState::ours() {
        tracing::info!(from = found.version, to = SchemaState::ours(), "schema migrated");
    }
    Ok(())
}

async fn apply(connection: &mut SqliteConnection, migration: &Migration, now: DateTime<Utc>) -> Result<(), StoreError> {
    sqlx::raw_sql(migration.sqlite).execute(&mut *connection).await.map_err(broken)?;
    sqlx::query(
        "INSERT INTO punctual_schema (version, name, checksum, oldest_compatible, applied_at) VALUES (?, ?, ?, ?, ?)",
    )
    .bind(migration.version)
    .bind(migration.name)
    .bind(checksum(migration.sqlite))
    .bind(migration.oldest_compatible)
    .bind(micros(now))
    .execute(connection)
    .await
    .map_err(broken)?;
    tracing::debug!(version = migration.version, name = migration.name, "migration applied");
    Ok(())
}
