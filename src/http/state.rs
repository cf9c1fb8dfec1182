//! What the running service is doing, for whoever asks.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use punctual_store::SchemaState;

/// The state of the service.
pub(crate) struct State {
    draining: AtomicBool,
    paused: AtomicBool,
    schema: Mutex<SchemaState>,
}

impl State {
    pub(crate) fn new(schema: SchemaState, paused: bool) -> Self {
        Self { draining: AtomicBool::new(false), paused: AtomicBool::new(paused), schema: Mutex::new(schema) }
    }

    /// Says that the service is stopping.
    pub(crate) fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire)
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
