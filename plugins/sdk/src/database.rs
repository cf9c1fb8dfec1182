use std::fmt;
use std::sync::Arc;

use sqlx::{AssertSqlSafe, PgConnection, PgPool, Postgres, Sqlite, SqliteConnection, SqlitePool};
use tokio::sync::{Mutex, OwnedMutexGuard};
use tokio_util::task::AbortOnDropHandle;
use uuid::Uuid;

use crate::engine::{Call, Engine, Kept, Outgoing, Overstay, Writer};
use crate::{EnqueueError, NewTask, NotifyError};

/// One of two: SQLite's, or PostgreSQL's.
#[derive(Debug, Clone, Copy)]
pub enum Either<S, P> {
    /// SQLite's.
    Sqlite(S),
    /// PostgreSQL's.
    Postgres(P),
}

/// Whose turn it is to write: SQLite lets one connection write at a time, and everybody here waits in line for it.
pub type Turn = Arc<Mutex<()>>;

/// The database that Punctual itself uses. A plugin may read and write tables of its own in it, and no others: those that
/// begin with `punctual_` change without notice.
#[derive(Clone)]
pub struct Database {
    pools: Either<(SqlitePool, Turn), PgPool>,
    writer: Arc<dyn Writer>,
    engine: Option<Arc<dyn Engine>>,
    overstay: Overstay,
}

impl Database {
    /// A SQLite database, as its store opens it.
    pub fn sqlite(pool: SqlitePool, turn: Turn, writer: Arc<dyn Writer>) -> Self {
        Self { pools: Either::Sqlite((pool, turn)), writer, engine: None, overstay: Overstay::default() }
    }

    /// A PostgreSQL database, as its store opens it.
    pub fn postgres(pool: PgPool, writer: Arc<dyn Writer>) -> Self {
        Self { pools: Either::Postgres(pool), writer, engine: None, overstay: Overstay::default() }
    }

    pub(crate) fn used_by(self, engine: Arc<dyn Engine>, overstay: Overstay) -> Self {
        Self { engine: Some(engine), overstay, ..self }
    }

    pub(crate) fn is_sqlite(&self) -> bool {
        matches!(self.pools, Either::Sqlite(_))
    }

    /// The pool of connections, to read from, and for single statements that write. See [`on_either!`](crate::on_either).
    pub fn either(&self) -> Either<&SqlitePool, &PgPool> {
        match &self.pools {
            Either::Sqlite((pool, _)) => Either::Sqlite(pool),
            Either::Postgres(pool) => Either::Postgres(pool),
        }
    }

    /// Begins a transaction that may write. Dropped without a commit, it is rolled back.
    ///
    /// On SQLite nobody else can write until it ends. So it is waited for in line, and whoever keeps one open for more than
    /// three seconds has failed: do not wait for others (a call over the network, a state cell) inside it.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn begin(&self) -> Result<Transaction, sqlx::Error> {
        let open = match &self.pools {
            Either::Sqlite((pool, turn)) => {
                let turn = turn.clone().lock_owned().await;
                // A transaction that begins by reading could not wait for its turn to write.
                Open::Sqlite(pool.begin_with("BEGIN IMMEDIATE").await?, turn)
            }
            Either::Postgres(pool) => Open::Postgres(pool.begin().await?),
        };
        Ok(Transaction {
            open,
            writer: self.writer.clone(),
            engine: self.engine.clone(),
            has_enqueued: false,
            has_posted: false,
            cancelled: Vec::new(),
            savepoints: 0,
            _time: self.overstay.begin(),
        })
    }

    /// Writes a task in a transaction of its own, and answers its id.
    ///
    /// # Errors
    /// As [`Transaction::enqueue`].
    pub async fn enqueue(&self, task: NewTask) -> Result<Uuid, EnqueueError> {
        let mut transaction = self.begin().await?;
        let id = transaction.enqueue(task).await?;
        transaction.commit().await?;
        Ok(id)
    }
}

impl fmt::Debug for Database {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_sqlite() { "Database(SQLite)" } else { "Database(PostgreSQL)" })
    }
}

/// A transaction that may write, the plugin's own tables and tasks alike.
pub struct Transaction {
    open: Open,
    writer: Arc<dyn Writer>,
    engine: Option<Arc<dyn Engine>>,
    has_enqueued: bool,
    has_posted: bool,
    cancelled: Vec<Uuid>,
    savepoints: u32,
    _time: Option<AbortOnDropHandle<()>>,
}

/// Where a transaction stood: [`Transaction::savepoint`].
#[derive(Debug)]
#[must_use]
pub struct Savepoint {
    name: String,
    has_enqueued: bool,
    has_posted: bool,
    cancelled: usize,
}

/// The turn goes on to the next when the transaction has ended.
enum Open {
    Sqlite(sqlx::Transaction<'static, Sqlite>, OwnedMutexGuard<()>),
    Postgres(sqlx::Transaction<'static, Postgres>),
}

impl Transaction {
    /// The connection, for the plugin's own statements. See [`on_either!`](crate::on_either).
    pub fn either(&mut self) -> Either<&mut SqliteConnection, &mut PgConnection> {
        match &mut self.open {
            Open::Sqlite(transaction, _) => Either::Sqlite(transaction),
            Open::Postgres(transaction) => Either::Postgres(transaction),
        }
    }

    /// Writes a task, and answers its id: a commit makes it visible, a rollback makes it never have been.
    ///
    /// # Errors
    /// When the task is refused; roll the transaction back then.
    pub async fn enqueue(&mut self, task: NewTask) -> Result<Uuid, EnqueueError> {
        let ids = self.writer.clone().write(self.either(), vec![task]).await?;
        self.has_enqueued = true;
        ids.into_iter().next().ok_or_else(|| EnqueueError::Unavailable("no task was written".into()))
    }

    /// Cancels a task, if it has not ended: it ends with the commit, and an attempt of its is told to stop.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn cancel(&mut self, task_id: Uuid) -> Result<(), EnqueueError> {
        self.writer.clone().cancel(self.either(), vec![task_id]).await?;
        self.cancelled.push(task_id);
        Ok(())
    }

    /// Remembers where the transaction stands, for work that may fail alone: [`undo_to`](Self::undo_to) takes back what came after,
    /// and the rest is committed all the same. An error without that spoils the transaction on PostgreSQL.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn savepoint(&mut self) -> Result<Savepoint, sqlx::Error> {
        self.savepoints += 1;
        let name = format!("part_{}", self.savepoints);
        self.say(format!("SAVEPOINT {name}")).await?;
        let Self { has_enqueued, has_posted, .. } = *self;
        Ok(Savepoint { name, has_enqueued, has_posted, cancelled: self.cancelled.len() })
    }

    /// Makes everything since then never have been.
    ///
    /// # Errors
    /// When the database is away.
    pub async fn undo_to(&mut self, savepoint: Savepoint) -> Result<(), sqlx::Error> {
        self.say(format!("ROLLBACK TO SAVEPOINT {}", savepoint.name)).await?;
        (self.has_enqueued, self.has_posted) = (savepoint.has_enqueued, savepoint.has_posted);
        self.cancelled.truncate(savepoint.cancelled);
        Ok(())
    }

    async fn say(&mut self, statement: String) -> Result<(), sqlx::Error> {
        let statement = sqlx::raw_sql(AssertSqlSafe(statement));
        match self.either() {
            Either::Sqlite(connection) => statement.execute(connection).await.map(drop),
            Either::Postgres(connection) => statement.execute(connection).await.map(drop),
        }
    }

    pub(crate) async fn keep(&mut self, call: &Call, status: u16, body: &str) -> Result<Kept, EnqueueError> {
        self.writer.clone().keep(self.either(), call, status, body).await
    }

    pub(crate) async fn post(&mut self, message: Outgoing) -> Result<Uuid, NotifyError> {
        let id = self.writer.clone().post(self.either(), message).await?;
        self.has_posted = true;
        Ok(id)
    }

    /// Makes everything in it so.
    ///
    /// # Errors
    /// When the database is away; it may or may not have happened then.
    pub async fn commit(self) -> Result<(), sqlx::Error> {
        match self.open {
            Open::Sqlite(transaction, _turn) => transaction.commit().await?,
            Open::Postgres(transaction) => transaction.commit().await?,
        }
        if let Some(engine) = self.engine {
            if self.has_enqueued {
                engine.tasks_written();
            }
            if self.has_posted {
                engine.messages_posted();
            }
            if !self.cancelled.is_empty() {
                engine.tasks_cancelled(self.cancelled).await;
            }
        }
        Ok(())
    }

    /// Makes everything in it never have been.
    ///
    /// # Errors
    /// When the database is away; it has not happened then either.
    pub async fn rollback(self) -> Result<(), sqlx::Error> {
        match self.open {
            Open::Sqlite(transaction, _turn) => transaction.rollback().await,
            Open::Postgres(transaction) => transaction.rollback().await,
        }
    }
}

/// Runs one piece of code on whichever database there is, for statements that both understand.
///
/// The first argument is a [`Database`](crate::Database) or a [`Transaction`](crate::Transaction), the second what its
/// connection is called in the code. A macro because the code has another type on each: sqlx binds parameters and reads
/// rows per database. Write parameters as `$1`, `$2`, which both understand; where the dialects part, match on `either()`.
///
/// ```
/// # use punctual_sdk::{Database, Error, on_either};
/// async fn greetings(database: &Database) -> Result<i64, Error> {
///     let count = "SELECT count(*) FROM greetings WHERE language = $1";
///     let count = on_either!(database, |pool| sqlx::query_scalar(count).bind("en").fetch_one(pool).await?);
///     Ok(count)
/// }
/// # use punctual_sdk::sqlx;
/// ```
#[macro_export]
macro_rules! on_either {
    ($either:expr, |$connection:ident| $work:expr) => {
        match $either.either() {
            $crate::Either::Sqlite($connection) => $work,
            $crate::Either::Postgres($connection) => $work,
        }
    };
}
