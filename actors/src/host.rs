//! What this node provides to its plugins.

use std::sync::{Arc, OnceLock};

use punctual_domain::json::Json;
use punctual_domain::store::Store;
use punctual_sdk::engine::Engine;
use punctual_sdk::{Database, Error, async_trait};

use crate::Hints;

/// The engine behind the plugins of one node.
pub(crate) struct Host {
    store: Arc<dyn Store>,
    hints: Arc<OnceLock<Hints>>,
}

impl Host {
    pub(crate) fn new(store: Arc<dyn Store>, hints: Arc<OnceLock<Hints>>) -> Self {
        Self { store, hints }
    }
}

#[async_trait]
impl Engine for Host {
    fn database(&self) -> &Database {
        self.store.database()
    }

    fn tasks_written(&self) {
        if let Some(hints) = self.hints.get() {
            hints.tasks_written();
        }
    }

    async fn read_cell(&self, name: &str) -> Result<Option<(String, u64)>, Error> {
        let cell = self.store.state_cell(name).await?;
        Ok(cell.map(|(value, version)| (value.as_str().to_owned(), version)))
    }

    async fn write_cell(&self, name: &str, value: String, version: u64) -> Result<bool, Error> {
        // Both databases must be able to hold it.
        let value = Json::parse(value)?;
        Ok(self.store.put_state_cell(name, &value, version).await?.is_some())
    }
}
