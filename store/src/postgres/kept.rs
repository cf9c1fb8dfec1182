//! Connections that hot statements keep to themselves.
//!
//! A pool asks a connection whether it is well each time it comes back, which costs more than a claim's round trip; and a
//! plan made for one set of figures can be a hundred times slower for another. So claiming, settling and writing have a
//! connection each, with plans that are made once and follow the indexes whatever the statistics say.

use std::ops::{Deref, DerefMut};

use punctual_domain::store::StoreError;
use sqlx::pool::PoolConnection;
use sqlx::postgres::PgConnection;
use sqlx::{Connection, PgPool, Postgres};
use tokio::sync::{Mutex, MutexGuard};

use super::broken;

/// What makes plans follow the indexes. Nothing but speed depends on it: behind a pooler these reach whichever server
/// connection ours met when it was opened.
const PLANS: &str = "SELECT set_config('plan_cache_mode', 'force_generic_plan', false),
    set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
    set_config('enable_hashjoin', 'off', false), set_config('enable_mergejoin', 'off', false)";

/// The place of a connection that is kept between statements; empty until it is first used, and after one failed.
#[derive(Default)]
pub(super) struct Kept(Mutex<Option<PgConnection>>);

impl Kept {
    /// Lets go of it in good order.
    pub(super) async fn close(&self) {
        if let Some(connection) = self.0.lock().await.take() {
            // A failed farewell changes nothing: the connection is gone either way.
            let _ = connection.close().await;
        }
    }
}

/// A connection on loan. Dropped in the middle of a statement, it would be used again with an answer still on its way;
/// so it is closed unless it was given back.
pub(super) struct Held<'s> {
    connection: Option<Lent>,
    /// Where it goes back to; none for one of the pool.
    place: Option<MutexGuard<'s, Option<PgConnection>>>,
}

enum Lent {
    Pooled(PoolConnection<Postgres>),
    Kept(PgConnection),
}

impl<'s> Held<'s> {
    /// One of the pool.
    pub(super) async fn pooled(pool: &PgPool) -> Result<Self, StoreError> {
        let connection = pool.acquire().await.map_err(broken)?;
        Ok(Self { connection: Some(Lent::Pooled(connection)), place: None })
    }

    /// The one that is kept, once whoever has it gives it back: two claims at a time would only get in each other's way.
    pub(super) async fn kept(kept: &'s Kept, pool: &PgPool) -> Result<Self, StoreError> {
        let mut place = kept.0.lock().await;
        let connection = match place.take() {
            Some(connection) => connection,
            None => {
                let mut connection = pool.acquire().await.map_err(broken)?.detach();
                sqlx::query(PLANS).persistent(false).execute(&mut connection).await.map_err(broken)?;
                connection
            }
        };
        Ok(Self { connection: Some(Lent::Kept(connection)), place: Some(place) })
    }

    /// Ends the loan in good order. One that is kept goes after any error: nobody asks it whether it is well.
    pub(super) fn give_back<T>(mut self, outcome: &Result<T, StoreError>) {
        match (self.connection.take(), &mut self.place) {
            (Some(Lent::Kept(connection)), Some(place)) => {
                **place = Some(connection).filter(|_| outcome.is_ok());
            }
            // Going out of scope brings it back to the pool.
            (lent, _) => drop(lent),
        }
    }
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
        }
    }
}

impl DerefMut for Held<'_> {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self.connection.as_mut().expect("it is on loan") {
            Lent::Pooled(connection) => connection,
            Lent::Kept(connection) => connection,
        }
    }
}
