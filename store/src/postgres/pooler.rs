//! What is different behind a pooler, such as PgBouncer in transaction mode.
//!
//! There a session lasts no longer than a transaction: between two of them our statements may meet another connection of
//! the server, where nothing is set that we set and nothing is prepared that we prepared. sqlx prepares each statement in
//! one step and runs it in the next, so even a single statement needs a transaction around both. Behind a pooler, then:
//!
//! - every loan of a connection is one transaction, which begins with the settings that a session has otherwise, and is
//!   committed when the loan ends;
//! - statements are not kept, and each transaction begins by forgetting those that others left, by whatever name;
//! - nobody listens: whoever would is told that nothing can be heard, and looks every second instead.
//!
//! It is told from the server itself by a setting that comes with the first connection: a pooler refuses it, or does not
//! pass it on. One that does can be named by `statement-cache-capacity=0` in the URL.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::store::StoreError;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, PgPool, Postgres, Row, Transaction};

use super::kept::PLANS;
use super::{ACQUIRE_DEADLINE, broken, connect_options, limits};
use crate::{Access, ConnectError};

/// The setting that only the server itself can have from us.
const SIGN: (&str, &str) = ("punctual.reached", "directly");
/// Says in a URL that there is a pooler.
const NAMED: &str = "statement-cache-capacity=0";
/// How PgBouncer refuses a setting that it does not know.
const REFUSAL: &str = "unsupported startup parameter";

/// The mark that a failed statement goes back to.
const MARK: &str = "SAVEPOINT punctual_mark";
const BACK: &str = "ROLLBACK TO SAVEPOINT punctual_mark";

/// A connection outside any pool, how it was made, and what it met.
pub(crate) struct Opened {
    pub(crate) connection: PgConnection,
    pub(super) options: PgConnectOptions,
    pub(crate) is_pooled: bool,
}

/// Opens one connection, and finds out whether it leads to the server itself.
pub(crate) async fn open(url: &str) -> Result<Opened, ConnectError> {
    let options = connect_options(url)?;
    let opened = match connect(options.clone().options([SIGN])).await? {
        Ok(mut connection) => {
            let is_pooled = url.contains(NAMED) || !is_direct(&mut connection).await?;
            Opened { connection, options, is_pooled }
        }
        Err(refused) if is_refusal(&refused) => {
            // What the URL itself asks for stays: it must not be dropped without a word.
            let options = options.extra_float_digits(None);
            let connection = connect(options.clone()).await?.map_err(broken)?;
            Opened { connection, options, is_pooled: true }
        }
        Err(error) => return Err(broken(error).into()),
    };
    Ok(opened)
}

async fn connect(options: PgConnectOptions) -> Result<Result<PgConnection, sqlx::Error>, StoreError> {
    tokio::time::timeout(ACQUIRE_DEADLINE, options.connect())
        .await
        .map_err(|_| StoreError::Unavailable(format!("no connection within {ACQUIRE_DEADLINE:?}")))
}

fn is_refusal(error: &sqlx::Error) -> bool {
    matches!(error, sqlx::Error::Database(database) if database.message().starts_with(REFUSAL))
}

async fn is_direct(connection: &mut PgConnection) -> Result<bool, StoreError> {
    // Not prepared: it may be no session yet.
    let sql = format!("SELECT current_setting('{}', true)", SIGN.0);
    let row = connection.fetch_one(sqlx::raw_sql(AssertSqlSafe(sql))).await.map_err(broken)?;
    Ok(row.try_get::<Option<&str>, _>(0).map_err(broken)? == Some(SIGN.1))
}

/// How transactions begin behind a pooler.
#[derive(Clone)]
pub(super) struct Pooler {
    plain: Arc<str>,
    planned: Arc<str>,
}

impl Pooler {
    pub(super) fn new(access: Access, deadline: Duration) -> Self {
        let begin = match access {
            Access::Full => "BEGIN",
            Access::Look => "BEGIN READ ONLY",
        };
        // Forgetting takes a snapshot, after which nobody could choose another isolation; so it has a transaction of its own.
        let mut plain = format!("BEGIN; DEALLOCATE ALL; COMMIT; {begin}");
        let set = |text: &mut String, (name, value): (&str, &str)| {
            *text += &format!("; SET LOCAL {name} = '{value}'");
        };
        for (name, value) in limits(deadline) {
            set(&mut plain, (name, &value));
        }
        let mut planned = plain.clone();
        PLANS.into_iter().for_each(|setting| set(&mut planned, setting));
        Self { plain: plain.into(), planned: planned.into() }
    }

    /// Begins a transaction like a session of the pool.
    pub(super) async fn begin(&self, pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
        pool.begin_with(AssertSqlSafe(self.plain.clone())).await.map_err(broken)
    }

    /// Begins one whose plans follow the indexes.
    pub(super) async fn begin_planned(&self, pool: &PgPool) -> Result<Transaction<'static, Postgres>, StoreError> {
        pool.begin_with(AssertSqlSafe(self.planned.clone())).await.map_err(broken)
    }

    /// The pool of plugins, which run single statements on it as well as transactions. Whoever gets a connection gets it
    /// in a transaction, which ends when it comes back; beginning one meanwhile changes nothing but that.
    pub(super) fn for_plugins(&self, options: PgPoolOptions) -> PgPoolOptions {
        let opening: Arc<str> = format!("{}; SET LOCAL client_min_messages = error", self.plain).into();
        let again = opening.clone();
        options
            .after_connect(move |connection, _| Box::pin(open_for_plugin(connection, opening.clone())))
            .before_acquire(move |connection, _| {
                let opening = again.clone();
                Box::pin(async move { open_for_plugin(connection, opening).await.map(|()| true) })
            })
            .after_release(|connection, _| {
                Box::pin(async move {
                    // Without the first word this would warn where the plugin's own transaction has ended already.
                    // Where a statement failed it fails too, and the connection goes.
                    Ok(sqlx::raw_sql("BEGIN; COMMIT").execute(connection).await.is_ok())
                })
            })
    }
}

async fn open_for_plugin(connection: &mut PgConnection, opening: Arc<str>) -> Result<(), sqlx::Error> {
    sqlx::raw_sql(AssertSqlSafe(opening)).execute(connection).await.map(drop)
}

/// Remembers this place, so that a statement may fail without taking the loan's transaction along.
pub(super) async fn mark(connection: &mut PgConnection) -> Result<(), StoreError> {
    in_transaction(connection, MARK).await
}

/// Goes back to where the last mark is.
pub(super) async fn back_to_mark(connection: &mut PgConnection) -> Result<(), StoreError> {
    in_transaction(connection, BACK).await
}

/// Says it where the loan is a transaction; otherwise each statement is one, and there is nothing to say.
async fn in_transaction(connection: &mut PgConnection, sql: &'static str) -> Result<(), StoreError> {
    if connection.is_in_transaction() {
        sqlx::raw_sql(sql).execute(connection).await.map_err(broken)?;
    }
    Ok(())
}

/// Begins a transaction that sees the database as it is now, whatever others commit meanwhile, and writes nothing.
pub(super) async fn begin_snapshot(connection: &mut PgConnection) -> Result<Transaction<'_, Postgres>, StoreError> {
    if !connection.is_in_transaction() {
        return connection.begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY").await.map_err(broken);
    }
    // The loan is one already, in which nothing was looked at so far.
    in_transaction(connection, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ READ ONLY").await?;
    connection.begin().await.map_err(broken)
}
