//! Who was here, and how often: the table `bed_counts`, one row per task.
//!
//! On PostgreSQL it is in the service's own database. SQLite's file belongs to the service, so there it is one beside it. Processes
//! are killed in these tests, machines are not: nothing waits for the disk.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{PgPool, SqlitePool};
use tokio::sync::OnceCell;

/// Opened by the first task that is counted.
#[derive(Default)]
pub(crate) struct Ledger(OnceCell<Pages>);

enum Pages {
    Postgres(PgPool),
    Sqlite(SqlitePool),
}

const COUNT: &str = "INSERT INTO bed_counts (task_id, epoch) VALUES ($1, $2)
    ON CONFLICT (task_id) DO UPDATE SET epoch = excluded.epoch, again = bed_counts.again + 1";

impl Ledger {
    /// Writes down that an attempt of this task is at work: its first, or one more.
    pub(crate) async fn count(&self, task_id: sqlx::types::Uuid, epoch: i64) -> Result<(), sqlx::Error> {
        match self.0.get_or_try_init(Pages::open).await? {
            Pages::Postgres(pool) => {
                sqlx::query(COUNT).bind(task_id).bind(epoch).execute(pool).await?;
            }
            Pages::Sqlite(pool) => {
                sqlx::query(COUNT).bind(task_id).bind(epoch).execute(pool).await?;
            }
        }
        Ok(())
    }
}

impl Pages {
    async fn open() -> Result<Self, sqlx::Error> {
        let url = std::env::var("DATABASE_URL").map_err(|error| sqlx::Error::Configuration(error.into()))?;
        if url.starts_with("sqlite:") {
            let beside = SqliteConnectOptions::from_str(&url)?.get_filename().with_file_name("bed.db");
            let options = SqliteConnectOptions::new()
                .filename(beside)
                .create_if_missing(true)
                .journal_mode(SqliteJournalMode::Wal)
                .synchronous(SqliteSynchronous::Off);
            let pool = SqlitePoolOptions::new().max_connections(1).connect_with(options).await?;
            sqlx::raw_sql(
                "CREATE TABLE IF NOT EXISTS bed_counts (
                    task_id BLOB PRIMARY KEY, epoch INTEGER NOT NULL, again INTEGER NOT NULL DEFAULT 0)",
            )
            .execute(&pool)
            .await?;
            return Ok(Self::Sqlite(pool));
        }
        let options = PgConnectOptions::from_str(&url)?.options([("synchronous_commit", "off")]);
        let pool = PgPoolOptions::new().max_connections(16).connect_with(options).await?;
        // Two nodes that create one table at the same time would be in each other's way.
        sqlx::raw_sql(
            "SELECT pg_advisory_xact_lock(6218);
             CREATE TABLE IF NOT EXISTS bed_counts (
                task_id uuid PRIMARY KEY, epoch bigint NOT NULL, again integer NOT NULL DEFAULT 0)",
        )
        .execute(&pool)
        .await?;
        Ok(Self::Postgres(pool))
    }
}
