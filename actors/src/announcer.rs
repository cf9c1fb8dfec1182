//! The Announcer: tells other nodes what changed, behind the writers' backs.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use punctual_domain::news::News;
use punctual_domain::store::Store;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

/// The pause between two announcements: each is a commit of its own, and all that was written meanwhile shares it.
const BETWEEN_ANNOUNCEMENTS: Duration = Duration::from_millis(20);

/// Tells other nodes what changed until it is dropped.
pub struct Announcer {
    /// What is to be told; a lock, because writers must neither wait nor pile up messages.
    told: Arc<(Mutex<News>, Notify)>,
    announcing: JoinHandle<()>,
}

impl Announcer {
    /// An announcer through that store; `None` where there can be no other nodes.
    pub fn start(store: &Arc<dyn Store>) -> Option<Self> {
        if !store.has_other_nodes() {
            return None;
        }
        let told = Arc::new((Mutex::new(News::default()), Notify::new()));
        let (store, telling) = (Arc::clone(store), Arc::clone(&told));
        let announcing = tokio::spawn(async move {
            let (waiting, asked) = &*telling;
            loop {
                asked.notified().await;
                let news = std::mem::take(&mut *waiting.lock().unwrap_or_else(PoisonError::into_inner));
                if let Err(error) = store.announce(&news).await {
                    tracing::debug!(%error, "other nodes not told");
                }
                tokio::time::sleep(BETWEEN_ANNOUNCEMENTS).await;
            }
        });
        Some(Self { told, announcing })
    }

    /// Tells these news, soon.
    pub fn tell(&self, news: News) {
        let (waiting, asked) = &*self.told;
        waiting.lock().unwrap_or_else(PoisonError::into_inner).merge(news);
        asked.notify_one();
    }
}

impl Drop for Announcer {
    fn drop(&mut self) {
        self.announcing.abort();
    }
}
