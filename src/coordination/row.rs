use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use punctual_domain::coordination::{Coordination, CoordinationError, Standing};
use punctual_domain::id::NodeId;
use punctual_domain::store::Store;

use super::LEADERSHIP;

/// The leader holds a row of the store; the store's clock says until when.
pub(super) struct InStore {
    pub(super) store: Arc<dyn Store>,
    pub(super) node: NodeId,
    pub(super) lease: Duration,
}

#[async_trait]
impl Coordination for InStore {
    async fn lead(&self) -> Result<Standing, CoordinationError> {
        match self.store.lead(LEADERSHIP, self.node, self.lease).await {
            Ok(leadership) if leadership.owner == self.node => Ok(Standing::Leads(self.lease)),
            // Another node's idea of a lease may be longer than ours, and the store's clock may have been set.
            Ok(leadership) => Ok(Standing::Follows(leadership.left.min(self.lease))),
            Err(error) => Err(CoordinationError(error.to_string())),
        }
    }

    async fn resign(&self) -> Result<(), CoordinationError> {
        self.store.resign(LEADERSHIP, self.node).await.map_err(|error| CoordinationError(error.to_string()))
    }
}
