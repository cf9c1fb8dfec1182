//! Tells the nodes of other processes that tasks were written, behind the writer's back and not more often than it takes:
//! what is written while an announcement is under way shares the next one.

use std::sync::Arc;

use punctual_domain::store::Store;
use tokio::sync::mpsc::{Sender, channel};
use tracing::debug;

/// Announces tasks until it is dropped.
pub(super) struct Announcer(Sender<()>);

impl Announcer {
    pub(super) fn start(store: Arc<dyn Store>) -> Self {
        let (sender, mut asked) = channel(1);
        tokio::spawn(async move {
            while let Some(()) = asked.recv().await {
                if let Err(error) = store.announce_tasks().await {
                    debug!(%error, "tasks not announced");
                }
            }
        });
        Self(sender)
    }

    pub(super) fn tasks_written(&self) {
        // Full: the announcement that waits is for these too.
        let _ = self.0.try_send(());
    }
}
