//! What the running service is doing, for whoever asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use punctual_store::SchemaState;
use tokio_util::sync::CancellationToken;

/// The state of the service.
pub(crate) struct State {
    stopping: CancellationToken,
    paused: AtomicBool,
    schema: Mutex<SchemaState>,
}

impl State {
    pub(crate) fn new(schema: SchemaState, paused: bool) -> Self {
        Self { stopping: CancellationToken::new(), paused: AtomicBool::new(paused), schema: Mutex::new(schema) }
    }

    /// Says that the service is stopping.
    pub(crate) fn drain(&self) {
        self.stopping.cancel();
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.stopping.is_cancelled()
    }

    /// Returns once the service is stopping.
    pub(crate) async fn drained(&self) {
        self.stopping.cancelled().await;
    }

    /// Says whether work is paused.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Ordering::Release);
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.paused.load(Ordering::Acquire)
    }

    /// Notes what the database's schema is.
    pub(crate) fn saw_schema(&self, schema: SchemaState) {
        *self.schema.lock().unwrap_or_else(PoisonError::into_inner) = schema;
    }

    pub(crate) fn schema(&self) -> SchemaState {
        self.schema.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
