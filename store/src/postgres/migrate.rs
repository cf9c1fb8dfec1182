//! Brings the schema up to date, safe when several nodes start at once.
//!
//! It all happens in one transaction, whose end also ends the lock: behind PgBouncer in transaction mode, statements
//! outside of one may each meet another server connection.

use punctual_domain::store::StoreError;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, Row};

use super::broken;
use super::pooler::{Opened, open};
use crate::migration::{Applied, checksum};
use crate::{ConnectError, Migration, SchemaState};

/// Serialises migrations; ends with its transaction, so a pooler between us and the server cannot strand it.
const LOCK: &str = "SELECT pg_advisory_xact_lock(hashtext('punctual_schema'))";

/// What the schema of the database at `url` is.
///
/// # Errors
/// When the database cannot be reached.
pub async fn schema_state(url: &str) -> Result<SchemaState, ConnectError> {
    let Opened { mut connection, .. } = open(url).await?;
    let mut transaction = connection.begin().await.map_err(broken)?;
    let state = state(&mut transaction).await?;
    transaction.rollback().await.map_err(broken)?;
    // A failed farewell changes nothing: the connection is gone either way.
    let _ = connection.close().await;
    Ok(state)
}

/// What the schema is: versions, and that what was applied is what we know.
pub(super) async fn state(connection: &mut PgConnection) -> Result<SchemaState, ConnectError> {
    let exists: bool = sqlx::query_scalar("SELECT to_regclass('punctual_schema') IS NOT NULL")
        .persistent(false)
        .fetch_one(&mut *connection)
        .await
        .map_err(broken)?;
    if !exists {
        return Ok(SchemaState::EMPTY);
    }
    let rows = sqlx::query("SELECT version, checksum, oldest_compatible FROM punctual_schema ORDER BY version")
        .persistent(false)
        .fetch_all(connection)
        .await
        .map_err(broken)?;
    let applied =
        rows.iter().map(|row| Applied { version: row.get(0), checksum: row.get(1), oldest_compatible: row.get(2) });
    SchemaState::of(applied, |migration| migration.postgres)
}

/// Applies what is missing; the caller's transaction makes it one. Answers which version it found, if it was an older one.
pub(super) async fn run(connection: &mut PgConnection) -> Result<Option<i32>, ConnectError> {
    let found = state(connection).await?;
    found.check_not_newer().map_err(ConnectError::Refused)?;
    if found.missing().next().is_none() {
        return Ok(None);
    }
    lock_schema(connection).await?;
    sqlx::query(
        "CREATE TABLE IF NOT EXISTS punctual_schema (
            version integer PRIMARY KEY, name text NOT NULL, checksum text NOT NULL,
            oldest_compatible integer NOT NULL, applied_at timestamptz NOT NULL DEFAULT now())",
    )
    .persistent(false)
    .execute(&mut *connection)
    .await
    .map_err(broken)?;
    // Looked at again under the lock: another node may have been first.
    let found = state(connection).await?;
    for migration in found.missing() {
        apply(connection, migration).await?;
    }
    Ok(Some(found.version).filter(|version| *version < SchemaState::ours()))
}

/// Waits until nobody else migrates; until the transaction ends, nobody else will.
pub(crate) async fn lock_schema(connection: &mut PgConnection) -> Result<(), StoreError> {
    sqlx::query(LOCK).persistent(false).execute(connection).await.map(drop).map_err(broken)
}

async fn apply(connection: &mut PgConnection, migration: &Migration) -> Result<(), StoreError> {
    sqlx::raw_sql(migration.postgres).execute(&mut *connection).await.map_err(broken)?;
    sqlx::query("INSERT INTO punctual_schema (version, name, checksum, oldest_compatible) VALUES ($1, $2, $3, $4)")
        .persistent(false)
        .bind(migration.version)
        .bind(migration.name)
        .bind(checksum(migration.postgres))
        .bind(migration.oldest_compatible)
        .execute(connection)
        .await
        .map_err(broken)?;
    tracing::debug!(version = migration.version, name = migration.name, "migration applied");
    Ok(())
}
