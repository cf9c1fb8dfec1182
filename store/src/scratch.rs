//! A scratch database for measuring: beside the real one, empty at first, removed at the end.

use std::path::{Path, PathBuf};

use punctual_domain::store::StoreError;
use sqlx::postgres::PgConnection;
use sqlx::sqlite::SqliteConnection;
use sqlx::{AssertSqlSafe, Connection};
use uuid::Uuid;

use crate::postgres::Opened;
use crate::{ConnectError, bad_url, postgres, sqlite};

/// A schema of its own in a PostgreSQL database, or a file of its own beside a SQLite one.
pub struct Scratch {
    url: String,
    place: Place,
}

enum Place {
    Schema(String),
    File(PathBuf),
}

impl Scratch {
    /// Makes an empty place in the database at `url`.
    ///
    /// # Errors
    /// When there is no such database, or nothing may be created there.
    pub async fn create(url: &str) -> Result<Self, ConnectError> {
        let name = format!("punctual_bench_{}", Uuid::new_v4().simple());
        if url.starts_with("sqlite:") {
            let Some(beside) = sqlite::file_of(url)? else {
                return Err(bad_url(url, "what is in memory cannot be measured as if it were on disk"));
            };
            let file = beside.with_file_name(format!("{name}.db"));
            return Ok(Self { url: format!("sqlite://{}", file.display()), place: Place::File(file) });
        }
        let Opened { mut connection, is_pooled, .. } = postgres::open(url).await?;
        if is_pooled {
            return Err(ConnectError::Refused(
                "a pooler stands before this PostgreSQL, which cannot be led to a schema of its own: measure on the server \
                 itself"
                    .into(),
            ));
        }
        let made = sqlx::raw_sql(AssertSqlSafe(format!("CREATE SCHEMA {name}"))).execute(&mut connection).await;
        made.map_err(postgres::broken)?;
        let separator = if url.contains('?') { '&' } else { '?' };
        let url = format!("{url}{separator}options=-csearch_path%3D{name}");
        Ok(Self { url, place: Place::Schema(name) })
    }

    /// The URL that leads `connect` to it.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Writes tasks of a topic that are due in a day or later.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn fill_future(&self, topic: &str, tasks: u64) -> Result<(), StoreError> {
        match &self.place {
            Place::Schema(_) => {
                let sql = include_str!("postgres/sql/scratch_future.sql");
                self.fill_postgres(sql, topic, tasks).await
            }
            Place::File(file) => fill_sqlite(file, include_str!("sqlite/sql/scratch_future.sql"), topic, tasks).await,
        }
    }

    /// Writes tasks of a topic that ended days ago.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn fill_history(&self, topic: &str, tasks: u64) -> Result<(), StoreError> {
        match &self.place {
            Place::Schema(_) => {
                let sql = include_str!("postgres/sql/scratch_history.sql");
                self.fill_postgres(sql, topic, tasks).await
            }
            Place::File(file) => fill_sqlite(file, include_str!("sqlite/sql/scratch_history.sql"), topic, tasks).await,
        }
    }

    /// Lets the database finish what it put off, so that it does not do so while something is measured.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn come_to_rest(&self) -> Result<(), StoreError> {
        match &self.place {
            Place::Schema(_) => {
                let mut connection = self.postgres().await?;
                for table in ["punctual_tasks", "punctual_task_history", "punctual_schedules", "punctual_fires"] {
                    sqlx::raw_sql(AssertSqlSafe(format!("VACUUM ANALYZE {table}")))
                        .execute(&mut connection)
                        .await
                        .map_err(postgres::broken)?;
                }
                // Only a superuser may; without it the figures are a little noisier.
                let _ = sqlx::raw_sql("CHECKPOINT").execute(&mut connection).await;
                Ok(())
            }
            Place::File(file) => {
                let mut connection = sqlite(file).await?;
                let sql = "PRAGMA wal_checkpoint(TRUNCATE)";
                sqlx::raw_sql(sql).execute(&mut connection).await.map_err(sqlite::broken)?;
                Ok(())
            }
        }
    }

    /// How many tasks of a topic have ended.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn ended(&self, topic: &str) -> Result<u64, StoreError> {
        let count = match &self.place {
            Place::Schema(_) => {
                sqlx::query_scalar::<_, i64>("SELECT count(*) FROM punctual_task_history WHERE topic = $1")
                    .bind(topic)
                    .fetch_one(&mut self.postgres().await?)
                    .await
                    .map_err(postgres::broken)?
            }
            Place::File(file) => {
                sqlx::query_scalar::<_, i64>("SELECT count(*) FROM punctual_task_history WHERE topic = ?1")
                    .bind(topic)
                    .fetch_one(&mut sqlite(file).await?)
                    .await
                    .map_err(sqlite::broken)?
            }
        };
        Ok(count.unsigned_abs())
    }

    /// Removes it, with everything in it.
    ///
    /// # Errors
    /// When the database is away; what is left then has a name that begins with `punctual_bench_`.
    pub async fn remove(self) -> Result<(), StoreError> {
        match &self.place {
            Place::Schema(name) => {
                let sql = format!("SET client_min_messages = error; DROP SCHEMA {name} CASCADE");
                let mut connection = self.postgres().await?;
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.map_err(postgres::broken)?;
                Ok(())
            }
            Place::File(file) => {
                for ending in ["", "-wal", "-shm", ".lock"] {
                    let mut path = file.clone().into_os_string();
                    path.push(ending);
                    match std::fs::remove_file(&path) {
                        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                            return Err(StoreError::Unavailable(error.to_string()));
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
        }
    }

    async fn postgres(&self) -> Result<PgConnection, StoreError> {
        let opened = postgres::open(&self.url).await;
        opened.map(|opened| opened.connection).map_err(|error| StoreError::Unavailable(error.to_string()))
    }

    async fn fill_postgres(&self, sql: &'static str, topic: &str, tasks: u64) -> Result<(), StoreError> {
        let mut connection = self.postgres().await?;
        sqlx::query(sql)
            .bind(i64::try_from(tasks).unwrap_or(i64::MAX))
            .bind(topic)
            .execute(&mut connection)
            .await
            .map_err(postgres::broken)?;
        Ok(())
    }
}

async fn sqlite(file: &Path) -> Result<SqliteConnection, StoreError> {
    SqliteConnection::connect(&format!("sqlite://{}", file.display())).await.map_err(sqlite::broken)
}

async fn fill_sqlite(file: &Path, sql: &'static str, topic: &str, tasks: u64) -> Result<(), StoreError> {
    let mut connection = sqlite(file).await?;
    sqlx::query(sql)
        .bind(i64::try_from(tasks).unwrap_or(i64::MAX))
        .bind(topic)
        .execute(&mut connection)
        .await
        .map_err(sqlite::broken)?;
    Ok(())
}
