//! SQLite: one node, nothing to install.
//!
//! One connection writes ([`writer`]), a small pool reads beside it; WAL lets neither wait for the other. What is
//! answered is on disk: `synchronous=FULL`, read back after opening. One process owns the file: a lock beside it keeps a
//! second one out. "Now" is the process's clock, which never goes backwards, asked once per job.
//!
//! Many rows travel as one JSON parameter that the statement takes apart with `json_each`: a statement costs a hop to
//! SQLite's thread and back, so ten thousand tasks are one statement, not ten thousand.

mod claims;
mod cluster;
mod file;
mod list;
mod migrate;
mod outbox;
mod rows;
mod schedules;
mod settle;
mod tasks;
mod tick;
mod topics;
mod upkeep;
mod writer;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::BoxFuture;
use punctual_domain::clock::Clock;
use punctual_domain::store::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlitePool};

pub use migrate::schema_state;
pub use tasks::insert_tasks;

use crate::{ConnectError, Migrate, Options};
use file::Place;
use writer::{Line, Writer};

/// How long SQLite waits for a lock that somebody else holds, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long waiting for a reader may take.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(5);

/// A store in a SQLite file, or in memory for tests.
pub struct SqliteStore {
    writer: Writer,
    /// `None` in memory: the database belongs to the writer's connection, which then reads too.
    readers: Option<SqlitePool>,
    now: Arc<Now>,
    deadline: Duration,
}

impl SqliteStore {
    /// Opens the file at `url`, creating it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// When the file cannot be used, another process has it, or its schema is newer than ours.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        let now = Arc::new(Now::new(options.clock));
        let (line, readers, lock) = match Place::of(url)? {
            Place::Memory => {
                let mut connection =
                    tuned(SqliteConnectOptions::new().filename(":memory:")).connect().await.map_err(broken)?;
                prepare(&mut connection, options.migrate, &now).await?;
                (Line::in_memory(connection), None, None)
            }
            Place::File(path) => {
                let lock = file::lock(&path).await?;
                let write = writing(&path).create_if_missing(true);
                let mut connection = write.connect().await.map_err(|error| file::cannot_open(&path, error))?;
                check_durability(&mut connection).await?;
                prepare(&mut connection, options.migrate, &now).await?;
                let readers = SqlitePoolOptions::new()
                    .max_connections(options.connections.max(1))
                    .acquire_timeout(ACQUIRE_DEADLINE)
                    .test_before_acquire(false)
                    .connect_lazy_with(reading(&path));
                (Line::to_file(connection, writing(&path)), Some(readers), Some(lock))
            }
        };
        let writer = Writer::start(line, now.clone(), lock);
        Ok(Self { writer, readers, now, deadline: options.deadline })
    }

    /// Runs `work` in a transaction of the writer, and answers once it is committed.
    async fn write<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection, DateTime<Utc>) -> BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        self.within_deadline(self.writer.run(work)).await
    }

    /// Runs `work` on a reader. Each statement sees a snapshot; two statements may see two.
    async fn read<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection, DateTime<Utc>) -> BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        let Some(readers) = &self.readers else { return self.write(work).await };
        let reading = async {
            let mut connection = readers.acquire().await.map_err(broken)?;
            work(&mut connection, self.now.now()).await
        };
        self.within_deadline(reading).await
    }

    /// Runs `work` on a reader, all its statements on one snapshot.
    async fn snapshot<T, W>(&self, work: W) -> Result<T, StoreError>
    where
        T: Send + 'static,
        W: for<'c> FnOnce(&'c mut SqliteConnection, DateTime<Utc>) -> BoxFuture<'c, Result<T, StoreError>>
            + Send
            + 'static,
    {
        let Some(readers) = &self.readers else { return self.write(work).await };
        let reading = async {
            let mut transaction = readers.begin().await.map_err(broken)?;
            let outcome = work(&mut transaction, self.now.now()).await;
            transaction.rollback().await.map_err(broken)?;
            outcome
        };
        self.within_deadline(reading).await
    }

    async fn within_deadline<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.deadline, work)
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable(format!("no answer within {:?}", self.deadline))))
    }
}

/// The store's clock: whole microseconds, never backwards.
struct Now {
    clock: Option<Arc<dyn Clock>>,
    latest: AtomicI64,
}

impl Now {
    fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, latest: AtomicI64::new(i64::MIN) }
    }

    fn now(&self) -> DateTime<Utc> {
        let told = self.clock.as_ref().map_or_else(Utc::now, |clock| clock.now());
        let micros = told.timestamp_micros();
        let latest = self.latest.fetch_max(micros, Ordering::Relaxed).max(micros);
        DateTime::from_timestamp_micros(latest).unwrap_or(told)
    }
}

/// What every connection is opened with.
fn tuned(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options.busy_timeout(BUSY_TIMEOUT).row_buffer_size(1024).pragma("temp_store", "memory").disable_statement_logging()
}

fn writing(path: &Path) -> SqliteConnectOptions {
    tuned(SqliteConnectOptions::new().filename(path))
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // 32 MiB; a negative number counts KiB.
        .pragma("cache_size", "-32768")
}

fn reading(path: &Path) -> SqliteConnectOptions {
    tuned(SqliteConnectOptions::new().filename(path)).read_only(true).pragma("cache_size", "-8192")
}

/// Refuses a file that cannot keep what was answered through a power cut.
async fn check_durability(connection: &mut SqliteConnection) -> Result<(), ConnectError> {
    let journal_mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(broken)?;
    if journal_mode != "wal" {
        return Err(ConnectError::Refused(format!(
            "SQLite cannot use its write-ahead log here (journal_mode is {journal_mode}): put the database on a local disk"
        )));
    }
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(connection).await.map_err(broken)?;
    if synchronous < FULL {
        return Err(ConnectError::Refused(format!(
            "SQLite runs with synchronous={synchronous}, so a power cut can lose tasks that were answered with 201: it \
             has to be {FULL} (FULL)"
        )));
    }
    Ok(())
}

/// What `PRAGMA synchronous` answers for FULL.
const FULL: i64 = 2;

async fn prepare(connection: &mut SqliteConnection, migrate: Migrate, now: &Now) -> Result<(), ConnectError> {
    match migrate {
        Migrate::Run => migrate::run(connection, now.now()).await,
        Migrate::Check => migrate::state(connection).await?.check_complete().map_err(ConnectError::Refused),
    }
}

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NO_MEMORY: i32 = 7;
const READ_ONLY: i32 = 8;
const INTERRUPTED: i32 = 9;
const IO_ERROR: i32 = 10;
const FULL_DISK: i32 = 13;
const CANNOT_OPEN: i32 = 14;
const NOT_A_DATABASE: i32 = 26;

/// SQLite's primary result code; the upper bits of what sqlx reports only say more about it.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// What a failed statement means: the database is away, or something is wrong with it or with us.
fn broken(error: sqlx::Error) -> StoreError {
    match (&error, primary_code(&error)) {
        (_, Some(BUSY | LOCKED | NO_MEMORY | READ_ONLY | INTERRUPTED | IO_ERROR | FULL_DISK | CANNOT_OPEN))
        | (
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed,
            None,
        ) => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Broken(error.to_string()),
    }
}
