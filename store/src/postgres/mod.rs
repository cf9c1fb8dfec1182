//! PostgreSQL: many nodes, one truth.
//!
//! Every statement has a deadline; a connection whose statement did not end in time, or whose caller went away in the
//! middle of one, is closed and not used again. A lost connection is an ordinary error, and the pool opens new ones by
//! itself.
//!
//! The server gives a statement up by itself a second after our deadline (`statement_timeout`, `lock_timeout`): one that
//! waits for a lock does not notice that its caller has gone, and would be carried out long after we reported it lost.
//! It also ends a transaction in which nothing is said for a while (`idle_in_transaction_session_timeout`): a process that
//! was stopped in the middle of one would keep what it locked from all others for as long as it stands still.
//!
//! Behind a pooler in transaction mode there are no sessions to set this in, or to prepare statements in: `pooler.rs` tells
//! what happens there instead.

/// Runs a block on a connection of the store, within the deadline, and gives the connection back whatever the block
/// answers. A macro because the block borrows freely and its future must be `Send`, which no closure can promise yet.
///
/// `lend!(self.claiming, …)` prefers the connection that is kept for such statements, `lend!(@ self, held, …)` takes the one that
/// a future answers.
macro_rules! lend {
    ($store:ident, |$connection:ident| $work:block) => {
        lend!(@ $store, $crate::postgres::kept::Held::pooled(&$store.connections), |$connection| $work)
    };
    ($store:ident.$kept:ident, |$connection:ident| $work:block) => {
        lend!(@ $store, $crate::postgres::kept::Held::kept(&$store.$kept, &$store.connections), |$connection| $work)
    };
    (@ $store:ident, $held:expr, |$connection:ident| $work:block) => {
        $store
            .within_deadline(async {
                let mut held = $held.await?;
                let outcome = {
                    let $connection: &mut sqlx::postgres::PgConnection = &mut held;
                    async move { $work }.await
                };
                held.give_back(outcome).await
            })
            .await
    };
}

mod alerts;
mod answers;
mod audit;
mod bulk;
mod calendars;
mod claims;
mod cluster;
mod fires;
mod gather;
mod glance;
mod hand_overs;
mod hearing;
mod inspection;
mod kept;
mod list;
mod migrate;
mod outbox;
#[cfg(test)]
mod plans;
mod plugins;
mod pooler;
mod pulls;
mod rows;
mod schedules;
mod settle;
mod stretch;
mod tasks;
mod tick;
mod ticks;
mod topics;
mod upkeep;

use std::future::Future;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::store::StoreError;
use punctual_sdk::Database;
use sqlx::postgres::{PgConnectOptions, PgConnection, PgPoolOptions};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::watch;
use tracing::info;

pub(crate) use answers::keep_now as keep_answer;
pub(crate) use migrate::lock_schema;
pub use migrate::schema_state;
pub(crate) use outbox::post;
pub(crate) use pooler::{Opened, open};
pub(crate) use tasks::cancel_any as cancel;
pub use tasks::{announce_tasks, insert_tasks};
pub(crate) use topics::definitions;

use crate::plugins::Enqueue;
use crate::{Access, Announced, ConnectError, Migrate, Options, SchemaState, bad_url};
use gather::Gather;
use hearing::Hearing;
use kept::{Connections, IDLE, Kept};
use pooler::Pooler;

/// How long opening or waiting for a connection may take.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(5);

/// How much longer than our deadline the server goes on with a statement.
const GRACE: Duration = Duration::from_secs(1);

/// How long a transaction may say nothing, and its deadline at the most: ours go from statement to statement without a pause.
const SILENCE: Duration = Duration::from_secs(5);

/// A store in a PostgreSQL database.
pub struct PostgresStore {
    connections: Connections,
    gather: Arc<Gather>,
    hearing: Hearing,
    claiming: Kept,
    settling: Kept,
    /// For a second write of outcomes while nothing is claimed.
    settling_beside: Kept,
    /// How many claims for this node's own slots are under way or wait for their connection.
    claims: watch::Sender<usize>,
    pulling: Kept,
    ticking: Kept,
    /// As plugins use it, on connections of their own: they may keep one for long.
    database: Database,
    clock: Option<Arc<dyn Clock>>,
    deadline: Duration,
    announced: Option<Announced>,
}

impl PostgresStore {
    /// Opens the database at `url` and brings its schema up to date.
    ///
    /// # Errors
    /// When it cannot be reached, is older than version 15, runs without `fsync` or `synchronous_commit`, or has a newer
    /// schema than ours.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        let Opened { mut connection, options: connecting, is_pooled } = open(url).await?;
        let migrate = match options.access {
            Access::Full => options.migrate,
            Access::Look => Migrate::Check,
        };
        prepare(&mut connection, migrate).await?;
        // A failed farewell changes nothing: the connection is gone either way.
        let _ = connection.close().await;

        let sized = || PgPoolOptions::new().max_connections(options.connections).acquire_timeout(ACQUIRE_DEADLINE);
        let (for_us, for_plugins, connecting, pooler) = if is_pooled {
            info!("a pooler stands before PostgreSQL: each call is a transaction, and other nodes are not listened to");
            let pooler = Pooler::new(options.access, options.deadline);
            (sized(), pooler.for_plugins(sized()), connecting.statement_cache_capacity(0), Some(pooler))
        } else {
            let for_us =
                sized().after_connect(move |connection, _| Box::pin(set(connection, limits(options.deadline))));
            let connecting = match options.access {
                Access::Full => connecting,
                Access::Look => connecting.options([("default_transaction_read_only", "on")]),
            };
            (for_us, sized(), connecting, None)
        };
        let is_direct = pooler.is_none();
        let for_us = for_us.test_before_acquire(false).before_acquire(move |connection, rested| {
            Box::pin(async move {
                // A pooler outlives its server, and would have to find a session for the question.
                let may_be_dead = is_direct && rested.idle_for >= IDLE;
                Ok(!may_be_dead || connection.ping().await.is_ok())
            })
        });
        let pool = for_us.connect_lazy_with(connecting.clone());
        let for_plugins = for_plugins.connect_lazy_with(connecting.application_name("punctual plugins"));
        let connections = Connections { pool, pooler };
        let clock = options.clock.clone();
        let enqueue = Enqueue { now: Arc::new(move || clock.as_ref().map(|clock| clock.now())) };
        let database = Database::postgres(for_plugins, Arc::new(enqueue));
        Ok(Self {
            gather: Gather::new(connections.clone(), options.clock.clone(), options.deadline),
            connections,
            database,
            hearing: Hearing::default(),
            claiming: Kept::default(),
            settling: Kept::default(),
            settling_beside: Kept::default(),
            claims: watch::Sender::new(0),
            pulling: Kept::default(),
            ticking: Kept::default(),
            clock: options.clock,
            deadline: options.deadline,
            announced: options.announced,
        })
    }

    /// The instant that statements take as now: the clock's, or `None` for the database's own.
    fn now(&self) -> Option<DateTime<Utc>> {
        self.clock.as_ref().map(|clock| clock.now())
    }

    /// Runs `work` within the deadline.
    async fn within_deadline<T>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        tokio::time::timeout(self.deadline, work)
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable(format!("no answer within {:?}", self.deadline))))
    }
}

fn connect_options(url: &str) -> Result<PgConnectOptions, ConnectError> {
    let options = PgConnectOptions::from_str(url).map_err(|error| bad_url(url, error))?;
    Ok(options.application_name("punctual").disable_statement_logging())
}

/// The settings that make the server give up what we no longer wait for.
fn limits(deadline: Duration) -> [(&'static str, String); 4] {
    let millis = |limit: Duration| i32::try_from(limit.as_millis()).unwrap_or(i32::MAX).to_string();
    [
        ("statement_timeout", millis(deadline + GRACE)),
        ("lock_timeout", millis(deadline + GRACE)),
        ("idle_in_transaction_session_timeout", millis(deadline.min(SILENCE))),
        // Our statements are short: compiling one takes longer than running it, by a factor of a hundred for a claim.
        ("jit", "off".to_owned()),
    ]
}

/// Sets what a session of ours goes by.
async fn set<V: Into<String>>(
    connection: &mut PgConnection,
    settings: impl IntoIterator<Item = (&'static str, V)>,
) -> Result<(), sqlx::Error> {
    let (names, values): (Vec<_>, Vec<String>) = settings.into_iter().map(|(name, value)| (name, value.into())).unzip();
    sqlx::query("SELECT set_config(name, value, false) FROM unnest($1::text[], $2::text[]) AS s (name, value)")
        .persistent(false)
        .bind(names)
        .bind(values)
        .execute(connection)
        .await?;
    Ok(())
}

/// Checks the server and its schema in one transaction.
async fn prepare(connection: &mut PgConnection, migrate: Migrate) -> Result<(), ConnectError> {
    let mut transaction = connection.begin().await.map_err(broken)?;
    check_server(&mut transaction).await?;
    let migrated_from = match migrate {
        Migrate::Run => migrate::run(&mut transaction).await?,
        Migrate::Check => {
            let found = migrate::state(&mut transaction).await?;
            found.check_not_newer().and_then(|()| found.check_complete()).map_err(ConnectError::Refused)?;
            None
        }
    };
    transaction.commit().await.map_err(broken)?;
    if let Some(from) = migrated_from {
        info!(from, to = SchemaState::ours(), "schema migrated");
    }
    Ok(())
}

/// Refuses a server that cannot keep our promises.
async fn check_server(connection: &mut PgConnection) -> Result<(), ConnectError> {
    let (version, fsync, synchronous_commit): (String, String, String) = sqlx::query_as(
        "SELECT current_setting('server_version_num'), current_setting('fsync'), current_setting('synchronous_commit')",
    )
    .persistent(false)
    .fetch_one(connection)
    .await
    .map_err(broken)?;
    if version.parse::<u32>().is_ok_and(|version| version < 150_000) {
        return Err(ConnectError::Refused(format!(
            "PostgreSQL is too old (version {version}): Punctual needs 15 or newer"
        )));
    }
    if fsync != "on" {
        return Err(ConnectError::Refused(
            "PostgreSQL runs with fsync=off, so a power cut can lose tasks that were answered with 201: set fsync=on"
                .into(),
        ));
    }
    if synchronous_commit == "off" {
        return Err(ConnectError::Refused(
            "PostgreSQL runs with synchronous_commit=off for Punctual, so a crash can lose tasks that were answered with \
             201: set synchronous_commit=on for its role or database"
                .into(),
        ));
    }
    Ok(())
}

/// What a failed statement means: the database is away, or something is wrong with it or with us.
pub(crate) fn broken(error: sqlx::Error) -> StoreError {
    match &error {
        sqlx::Error::Database(database) => {
            let code = database.code().unwrap_or_default();
            // Connection, resources, operator, conflict with another transaction, read-only after a failover, a transaction
            // that stood still for too long, a database that is closed to connections.
            let is_away = ["08", "53", "57", "40"].iter().any(|class| code.starts_with(class))
                || matches!(&*code, "25006" | "25P03" | "55000" | "55P03" | "28000" | "3D000" | "28P01" | "58030");
            if is_away {
                StoreError::Unavailable(database.message().to_owned())
            } else {
                StoreError::Broken(format!("{error} ({code})"))
            }
        }
        sqlx::Error::Decode(_)
        | sqlx::Error::ColumnDecode { .. }
        | sqlx::Error::ColumnNotFound(_)
        | sqlx::Error::ColumnIndexOutOfBounds { .. }
        | sqlx::Error::TypeNotFound { .. }
        | sqlx::Error::Encode(_)
        | sqlx::Error::RowNotFound => StoreError::Broken(error.to_string()),
        _ => StoreError::Unavailable(error.to_string()),
    }
}

/// Whether a statement failed because a unique constraint or index of that name holds.
fn violates(error: &sqlx::Error, constraint: &str) -> bool {
    matches!(error, sqlx::Error::Database(database)
        if database.code().as_deref() == Some("23505") && database.constraint() == Some(constraint))
}

/// A duration as statements take it. PostgreSQL refuses an interval or an instant that it cannot hold, so what is longer
/// than all the years we store is cut; the statements stop at the end of the year 9999 themselves.
fn micros(duration: Duration) -> i64 {
    const MOST: i64 = 10_000 * 366 * 24 * 60 * 60 * 1_000_000;
    i64::try_from(duration.as_micros()).unwrap_or(MOST).min(MOST)
}
