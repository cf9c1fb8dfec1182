//! Coordination between nodes: hints that save a wait, never the truth.

use async_trait::async_trait;

/// Wakes other nodes and is woken by them. Losing every hint costs latency only.
#[async_trait]
pub trait Coordination: Send + Sync {
    /// Says that tasks were written that are due now or soon.
    fn tasks_written(&self);

    /// Returns when another node may have written something worth a look.
    async fn woken(&self);
}
