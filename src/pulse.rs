//! The pulse of this node: it tells the store that the node lives, and keeps an eye on the store while at it.

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::clock::Clock;
use punctual_domain::node::Node;
use punctual_domain::store::{Store, StoreError};
use tracing::{debug, info, warn};

use crate::config::Secret;
use crate::http::State;
use crate::store_time::StoreTime;

/// Our clock may differ from the store's by this much before somebody should know.
const TOLERATED_OFFSET: Duration = Duration::from_secs(2);

/// What beats, and how often.
pub(crate) struct Pulse {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) database_url: Secret,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) state: Arc<State>,
    pub(crate) node: Node,
    pub(crate) every: Duration,
}

impl Pulse {
    /// Beats until it is dropped.
    pub(crate) async fn run(self) {
        let mut is_well = true;
        loop {
            self.clock.sleep_until(self.clock.now() + self.every).await;
            let beat = self.beat().await;
            match (&beat, is_well) {
                (Ok(()), true) => {}
                (Ok(()), false) => info!("store back"),
                (Err(error), true) => warn!(%error, "store lost"),
                (Err(error), false) => debug!(%error, "store still away"),
            }
            is_well = beat.is_ok();
        }
    }

    async fn beat(&self) -> Result<(), StoreError> {
        self.store.heartbeat(&self.node).await?;
        let offset = self.time.measure(&*self.store).await?;
        if offset.abs().to_std().unwrap_or_default() > TOLERATED_OFFSET {
            warn!(offset_ms = offset.num_milliseconds(), "clock differs from the database's");
        }
        match punctual_store::schema_state(self.database_url.expose()).await {
            Ok(schema) => self.state.saw_schema(schema),
            Err(error) => debug!(%error, "schema not read"),
        }
        Ok(())
    }
}
