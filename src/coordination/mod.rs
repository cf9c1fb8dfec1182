//! Who leads, among the nodes of one store: the only one (SQLite), the holder of a row in PostgreSQL, or the holder of a
//! key in Redis with that row behind it.

mod redis;
mod row;

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::coordination::{Alone, Coordination};
use punctual_domain::id::NodeId;
use punctual_domain::store::{Store, StoreError};

use self::redis::InRedis;
use self::row::InStore;
use crate::redis::Redis;

/// The name of the leadership over what is due.
pub(crate) const LEADERSHIP: &str = "ticker";

/// How long leadership lasts, and how often it is renewed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Terms {
    pub(crate) lease: Duration,
    pub(crate) heartbeat: Duration,
}

/// Chooses how it is found out who leads.
///
/// # Errors
/// When the store does not answer.
pub(crate) async fn choose(
    store: &Arc<dyn Store>,
    redis: Option<Redis>,
    node: NodeId,
    terms: Terms,
) -> Result<Arc<dyn Coordination>, StoreError> {
    if !store.has_other_nodes() {
        return Ok(Arc::new(Alone));
    }
    let row = InStore { store: Arc::clone(store), node, lease: terms.lease };
    Ok(match redis {
        None => Arc::new(row),
        Some(redis) => Arc::new(InRedis::new(redis, &store.cluster_id().await?, row, terms)),
    })
}
