//! What both stores do for plugins: their migrations, and tasks and messages inside their transactions.

use std::sync::Arc;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use punctual_domain::enqueue;
use punctual_domain::id::TaskId;
use punctual_domain::notify;
use punctual_domain::store::{Answer, Created, MigrationError, Posted, Remember, StoreError};
use punctual_sdk::engine::{Call, Kept, Outgoing, Writer};
use punctual_sdk::{Database, Either, EnqueueError, Migration, NewTask, NotifyError, Transaction, on_either};
use sqlx::{PgConnection, SqliteConnection};
use uuid::Uuid;

use crate::migration::checksum;
use crate::{postgres, sqlite};

/// The names of the migrations that were not applied.
pub(crate) async fn missing_migrations(
    database: &Database,
    plugin: &str,
    migrations: &[Migration],
) -> Result<Vec<&'static str>, MigrationError> {
    if migrations.is_empty() {
        return Ok(Vec::new());
    }
    let mut transaction = database.begin().await.map_err(|error| broken(database, error))?;
    let applied = applied(&mut transaction, plugin).await.map_err(|error| broken(database, error))?;
    transaction.rollback().await.map_err(|error| broken(database, error))?;
    let missing = missing(plugin, migrations, &applied, statements(database))?;
    Ok(missing.iter().map(|migration| migration.name).collect())
}

/// Applies what is missing, each in a transaction of its own.
pub(crate) async fn migrate(
    database: &Database,
    plugin: &str,
    migrations: &[Migration],
    now: Option<DateTime<Utc>>,
) -> Result<(), MigrationError> {
    // One look before each: another node may be at it as well.
    for _ in migrations {
        let mut transaction = database.begin().await.map_err(|error| broken(database, error))?;
        if let Either::Postgres(connection) = transaction.either() {
            postgres::lock_schema(connection).await?;
        }
        let applied = applied(&mut transaction, plugin).await.map_err(|error| broken(database, error))?;
        let Some(next) = missing(plugin, migrations, &applied, statements(database))?.first() else { break };
        apply(&mut transaction, next, statements(database)).await.map_err(|error| MigrationError::Failed {
            plugin: plugin.to_owned(),
            name: next.name,
            error: error.to_string(),
        })?;
        record(&mut transaction, plugin, applied.len() + 1, next, statements(database), now)
            .await
            .map_err(|error| broken(database, error))?;
        transaction.commit().await.map_err(|error| broken(database, error))?;
        tracing::info!(plugin, name = next.name, "plugin's migration applied");
    }
    Ok(())
}

/// Picks a dialect.
type Statements = fn(&Migration) -> &'static str;

fn statements(database: &Database) -> Statements {
    match database.either() {
        Either::Sqlite(_) => |migration| migration.sqlite,
        Either::Postgres(_) => |migration| migration.postgres,
    }
}

/// A migration as it was recorded: name and checksum.
type Applied = (String, String);

/// What was not applied; what was must be what comes first. A database that is ahead of us lacks nothing.
fn missing<'m>(
    plugin: &str,
    migrations: &'m [Migration],
    applied: &[Applied],
    statements: Statements,
) -> Result<&'m [Migration], MigrationError> {
    let pairs = migrations.iter().zip(applied).enumerate();
    for (i, (known, (name, recorded))) in pairs {
        if known.name != name || checksum(statements(known)) != *recorded {
            return Err(MigrationError::Changed { plugin: plugin.to_owned(), number: i + 1, name: name.clone() });
        }
    }
    Ok(migrations.get(applied.len()..).unwrap_or_default())
}

async fn applied(transaction: &mut Transaction, plugin: &str) -> Result<Vec<Applied>, sqlx::Error> {
    match transaction.either() {
        Either::Sqlite(connection) => {
            sqlx::query_as(include_str!("sqlite/sql/plugin_migrations.sql")).bind(plugin).fetch_all(connection).await
        }
        Either::Postgres(connection) => {
            let found = sqlx::query_as(include_str!("postgres/sql/plugin_migrations.sql")).persistent(false);
            found.bind(plugin).fetch_all(connection).await
        }
    }
}

async fn apply(
    transaction: &mut Transaction,
    migration: &Migration,
    statements: Statements,
) -> Result<(), sqlx::Error> {
    let text = statements(migration);
    on_either!(transaction, |connection| sqlx::raw_sql(text).execute(connection).await.map(drop))
}

async fn record(
    transaction: &mut Transaction,
    plugin: &str,
    number: usize,
    migration: &Migration,
    statements: Statements,
    now: Option<DateTime<Utc>>,
) -> Result<(), sqlx::Error> {
    let checksum = checksum(statements(migration));
    match transaction.either() {
        Either::Sqlite(connection) => sqlx::query(include_str!("sqlite/sql/record_plugin_migration.sql"))
            .bind(plugin)
            .bind(number as i64)
            .bind(migration.name)
            .bind(checksum)
            .bind(now.unwrap_or_default().timestamp_micros())
            .execute(connection)
            .await
            .map(drop),
        Either::Postgres(connection) => sqlx::query(include_str!("postgres/sql/record_plugin_migration.sql"))
            .persistent(false)
            .bind(plugin)
            .bind(number as i64)
            .bind(migration.name)
            .bind(checksum)
            .bind(now)
            .execute(connection)
            .await
            .map(drop),
    }
}

fn broken(database: &Database, error: sqlx::Error) -> StoreError {
    match database.either() {
        Either::Sqlite(_) => sqlite::broken(error),
        Either::Postgres(_) => postgres::broken(error),
    }
}

/// Tells the instant at which statements run; `None` is the database's own clock.
pub(crate) type TellTime = Arc<dyn Fn() -> Option<DateTime<Utc>> + Send + Sync>;

/// Writes tasks and messages inside the transactions of plugins.
pub(crate) struct Enqueue {
    pub(crate) now: TellTime,
}

#[async_trait]
impl Writer for Enqueue {
    async fn write(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        tasks: Vec<NewTask>,
    ) -> Result<Vec<Uuid>, EnqueueError> {
        let now = (self.now)();
        let created = match connection {
            Either::Sqlite(connection) => {
                let definitions = sqlite::definitions(connection).await.map_err(refused)?;
                let tasks = tasks.into_iter().map(|task| enqueue::new_task(task, &definitions));
                let tasks = tasks.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
                sqlite::insert_tasks(connection, tasks, now.unwrap_or_default()).await
            }
            Either::Postgres(connection) => {
                let definitions = postgres::definitions(connection).await.map_err(refused)?;
                let tasks = tasks.into_iter().map(|task| enqueue::new_task(task, &definitions));
                let tasks = tasks.collect::<Result<Vec<_>, _>>().map_err(invalid)?;
                postgres::announce_tasks(connection).await.map_err(refused)?;
                postgres::insert_tasks(connection, tasks, now).await
            }
        };
        let id = |created: Created| -> TaskId {
            match created {
                Created::Fresh(task) | Created::Deduplicated(task) => task.id,
            }
        };
        Ok(created.map_err(refused)?.into_iter().map(|created| id(created).0).collect())
    }

    async fn cancel(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        ids: Vec<Uuid>,
    ) -> Result<(), EnqueueError> {
        let now = (self.now)();
        match connection {
            Either::Sqlite(connection) => {
                let ids: Vec<_> = ids.into_iter().map(TaskId).collect();
                sqlite::cancel(connection, &ids, now.unwrap_or_default()).await.map_err(refused)?;
            }
            Either::Postgres(connection) => {
                postgres::cancel(connection, &ids, now).await.map_err(refused)?;
            }
        }
        Ok(())
    }

    async fn keep(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        call: &Call,
        status: u16,
        body: &str,
    ) -> Result<Kept, EnqueueError> {
        let now = (self.now)();
        let answer = Answer { status, body: body.to_owned() };
        let remember: Remember<()> = Remember {
            owner: call.owner.clone(),
            key: call.key.clone(),
            fingerprint: call.fingerprint.clone(),
            answer: Box::new(move |()| answer),
        };
        let kept = match connection {
            Either::Sqlite(connection) => sqlite::keep_answer(connection, remember, now.unwrap_or_default()).await,
            Either::Postgres(connection) => postgres::keep_answer(connection, remember, now).await,
        };
        match kept {
            Ok(None) => Ok(Kept::Now),
            Ok(Some(first)) => Ok(Kept::Before(first.status, first.body)),
            Err(StoreError::IdempotencyKeyReused) => Ok(Kept::Reused),
            Err(error) => Err(refused(error)),
        }
    }

    async fn post(
        &self,
        connection: Either<&mut SqliteConnection, &mut PgConnection>,
        message: Outgoing,
    ) -> Result<Uuid, NotifyError> {
        let message = notify::new_message(message).map_err(|invalid| NotifyError::Refused(invalid.to_string()))?;
        let now = (self.now)();
        let posted = match connection {
            Either::Sqlite(connection) => sqlite::post(connection, &[message], now.unwrap_or_default()).await,
            Either::Postgres(connection) => postgres::post(connection, &[message], now).await,
        };
        let unavailable = |error: StoreError| NotifyError::Unavailable(error.into());
        match posted.map_err(unavailable)?.first() {
            Some(Posted::New(id) | Posted::Known { id, .. }) => Ok(id.0),
            None => Err(unavailable(StoreError::Broken("a message was neither written nor found".into()))),
        }
    }
}

fn invalid(invalid: punctual_domain::invalid::Invalid) -> EnqueueError {
    EnqueueError::Invalid(invalid.to_string())
}

fn refused(error: StoreError) -> EnqueueError {
    match error {
        StoreError::ClientRequestIdInUse(id) => EnqueueError::ClientRequestIdInUse(id),
        error => EnqueueError::Unavailable(error.into()),
    }
}
