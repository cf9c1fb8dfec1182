//! Connections that hot statements keep to themselves.
//!
//! A pool asks a connection whether it is well each time it comes back, which costs more than a claim's round trip; and a
//! plan made for one set of figures can be a hundred times slower for another. So claiming, settling and writing have a
//! connection each, with plans that are made once and follow the indexes whatever the statistics say.

use std::ops::{Deref, DerefMut};
use std::time::{Duration, Instant};

use punctual_domain::store::StoreError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool, Postgres, Transaction};
use tokio::sync::{Mutex, MutexGuard};

use super::pooler::Pooler;
use super::{ACQUIRE_DEADLINE, broken, set};

/// What makes plans follow the indexes. Nothing but speed depends on it.
pub(super) const PLANS: [(&str, &str); 5] = [
    ("plan_cache_mode", "force_generic_plan"),
    ("enable_seqscan", "off"),
    ("enable_bitmapscan", "off"),
    ("enable_hashjoin", "off"),
    ("enable_mergejoin", "off"),
];

/// How long nobody may have used a connection before it is asked whether it is well: the server may have been restarted since.
pub(super) const IDLE: Duration = Duration::from_millis(250);

/// Where connections come from.
#[derive(Clone)]
pub(super) struct Connections {
    pub(super) pool: PgPool,
    /// What stands between them and the server, if anything does.
    pub(super) pooler: Option<Pooler>,
}

/// The place of a connection that is kept between statements; empty until it is first used, and after one failed.
#[derive(Default)]
pub(super) struct Kept(Mutex<Option<Resting>>);

/// The place of a connection that nobody else has.
pub(super) type Place<'s> = MutexGuard<'s, Option<Resting>>;

/// A connection that nobody uses, and since when.
pub(super) struct Resting {
    connection: PgConnection,
    since: Instant,
}

impl Resting {
    fn of(connection: PgConnection) -> Self {
        Self { connection, since: Instant::now() }
    }

    /// The connection, unless it died meanwhile.
    async fn wake(mut self) -> Option<PgConnection> {
        let is_well = self.since.elapsed() < IDLE
            || matches!(tokio::time::timeout(ACQUIRE_DEADLINE, self.connection.ping()).await, Ok(Ok(())));
        is_well.then_some(self.connection)
    }
}

impl Kept {
    /// The place, once whoever has the connection gives it back.
    pub(super) async fn place(&self) -> Place<'_> {
        self.0.lock().await
    }

    /// Lets go of it in good order.
    pub(super) async fn close(&self) {
        if let Some(resting) = self.0.lock().await.take() {
            // A failed farewell changes nothing: the connection is gone either way.
            let _ = resting.connection.close().await;
        }
    }
}

/// A connection on loan. Dropped in the middle of a statement, it would be used again with an answer still on its way;
/// so it is closed unless it was given back.
pub(super) struct Held<'s> {
    connection: Option<Lent>,
    /// Where it goes back to; none for one of the pool.
    place: Option<Place<'s>>,
}

enum Lent {
    Pooled(PoolConnection<Postgres>),
    Kept(PgConnection),
    /// Behind a pooler.
    Transaction(Transaction<'static, Postgres>),
}

impl<'s> Held<'s> {
    /// One of the pool.
    pub(super) async fn pooled(connections: &Connections) -> Result<Self, StoreError> {
        let lent = match &connections.pooler {
            None => Lent::Pooled(connections.pool.acquire().await.map_err(broken)?),
            Some(pooler) => Lent::Transaction(pooler.begin(&connections.pool).await?),
        };
        Ok(Self { connection: Some(lent), place: None })
    }

    /// The one that is kept, once whoever has it gives it back: two claims at a time would only get in each other's way.
    pub(super) async fn kept(kept: &'s Kept, connections: &Connections) -> Result<Self, StoreError> {
        Self::at(kept.place().await, connections).await
    }

    /// The one of a place.
    pub(super) async fn at(mut place: Place<'s>, connections: &Connections) -> Result<Self, StoreError> {
        let rested = match place.take() {
            Some(resting) => resting.wake().await,
            None => None,
        };
        let lent = match (rested, &connections.pooler) {
            (Some(connection), _) => Lent::Kept(connection),
            (None, None) => Lent::Kept(open_kept(&connections.pool).await?),
            (None, Some(pooler)) => Lent::Transaction(pooler.begin_planned(&connections.pool).await?),
        };
        Ok(Self { connection: Some(lent), place: Some(place) })
    }

    /// Ends the loan in good order. One that is kept goes after any error: nobody asks it right away whether it is well. A
    /// transaction is committed before anybody is told of what was done in it.
    pub(super) async fn give_back<T>(mut self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        match (self.connection.take(), &mut self.place) {
            (Some(Lent::Kept(connection)), Some(place)) => {
                **place = outcome.is_ok().then(|| Resting::of(connection));
            }
            (Some(Lent::Transaction(transaction)), _) => match &outcome {
                Ok(_) => transaction.commit().await.map_err(broken)?,
                // One that cannot be rolled back is lost, and rolled back by that.
                Err(_) => drop(transaction.rollback().await),
            },
            // Rolls back what was begun before anybody is told: a lock that lingers makes others pass over the row. Going
            // out of scope then brings it back to the pool, which closes it if it is not well.
            (Some(Lent::Pooled(mut connection)), _) if is_refused(&outcome) => drop(connection.ping().await),
            // It may be of a session that can only read, and work again if it is opened anew.
            (Some(Lent::Pooled(mut connection)), _) if outcome.is_err() => connection.close_on_drop(),
            (lent, _) => drop(lent),
        }
        outcome
    }
}

/// Whether the store said no, on a connection that works.
fn is_refused<T>(outcome: &Result<T, StoreError>) -> bool {
    outcome.as_ref().is_err_and(|error| !matches!(error, StoreError::Unavailable(_)))
}

async fn open_kept(pool: &PgPool) -> Result<PgConnection, StoreError> {
    let mut connection = pool.acquire().await.map_err(broken)?.detach();
    set(&mut connection, PLANS).await.map_err(broken)?;
    Ok(connection)
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        if let Some(Lent::Pooled(connection)) = &mut self.connection {
            connection.close_on_drop();
        }
    }
}

impl Deref for Held<'_> {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self.connection.as_ref().expect("it is on loan") {
            Lent::Pooled(connection) => connection,
            Lent::Kept(connection) => connection,
            Lent::Transaction(transaction) => transaction,
        }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self.connection.as_mut().expect("it is on loan") {
            Lent::Pooled(connection) => connection,
            Lent::Kept(connection) => connection,
            Lent::Transaction(transaction) => transaction,
        }
    }
}
