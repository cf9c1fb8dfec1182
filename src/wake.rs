//! Who is told that tasks were written: the engine of this process at once, and the nodes of others through the
//! database. All of it is hints; what they save is waiting for the next look.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use punctual_actors::Hints;
use punctual_domain::id::TaskId;
use punctual_domain::store::Store;
use punctual_domain::task::Task;
use tokio::sync::mpsc::{Sender, channel};
use tokio::task::JoinHandle;
use tracing::{debug, info, warn};

/// The pause between two announcements: each is a commit of its own, and all that was written meanwhile shares it.
const BETWEEN_ANNOUNCEMENTS: Duration = Duration::from_millis(20);
/// How often this node looks for itself while it cannot hear the others.
const POLL_WHILE_DEAF: Duration = Duration::from_secs(1);

/// Tells whoever may want to know.
pub(crate) struct Wake {
    /// `None` if nothing runs here.
    hints: Option<Hints>,
    /// `None` where there can be no other nodes.
    others: Option<Announcer>,
}

impl Wake {
    /// `hints` lead to the engine of this process; the nodes of others are told through `store`.
    pub(crate) fn new(hints: Option<Hints>, store: &Arc<dyn Store>) -> Self {
        Self { hints, others: store.has_other_nodes().then(|| Announcer::start(Arc::clone(store))) }
    }

    /// These tasks were written.
    pub(crate) fn tasks_written<'t>(&self, tasks: impl IntoIterator<Item = &'t Task>) {
        if let Some(hints) = &self.hints {
            let mut earliest = HashMap::new();
            for task in tasks {
                let run_at = earliest.entry(&task.topic).or_insert(task.run_at);
                *run_at = task.run_at.min(*run_at);
            }
            for (topic, run_at) in earliest {
                hints.task_written(topic.clone(), run_at);
            }
        }
        self.announce();
    }

    /// Tasks changed, nobody says which.
    pub(crate) fn tasks_changed(&self) {
        if let Some(hints) = &self.hints {
            hints.tasks_written();
        }
        self.announce();
    }

    /// A running task was cancelled: its attempt is told to stop.
    pub(crate) fn task_cancelled(&self, id: TaskId) {
        if let Some(hints) = &self.hints {
            hints.task_cancelled(id);
        }
    }

    fn announce(&self) {
        if let Some(others) = &self.others {
            others.tasks_written();
        }
    }
}

/// Announces tasks to other nodes until it is dropped, behind the writers' backs.
struct Announcer(Sender<()>);

impl Announcer {
    fn start(store: Arc<dyn Store>) -> Self {
        let (sender, mut asked) = channel(1);
        tokio::spawn(async move {
            while let Some(()) = asked.recv().await {
                if let Err(error) = store.announce_tasks().await {
                    debug!(%error, "tasks not announced");
                }
                tokio::time::sleep(BETWEEN_ANNOUNCEMENTS).await;
            }
        });
        Self(sender)
    }

    fn tasks_written(&self) {
        // Full: the announcement that waits is for these too.
        let _ = self.0.try_send(());
    }
}

/// Passes on what other nodes announce, until it is aborted. While they cannot be heard, it looks every second.
pub(crate) fn hear(store: Arc<dyn Store>, hints: Hints) -> Option<JoinHandle<()>> {
    store.has_other_nodes().then(|| {
        tokio::spawn(async move {
            let mut hears = true;
            loop {
                match store.hear_tasks().await {
                    Ok(()) if !hears => {
                        info!("other nodes are heard again");
                        hears = true;
                    }
                    Ok(()) => {}
                    Err(error) => {
                        if std::mem::take(&mut hears) {
                            warn!(%error, "other nodes cannot be heard, tasks are looked for every second");
                        }
                        tokio::time::sleep(POLL_WHILE_DEAF).await;
                    }
                }
                hints.tasks_written();
            }
        })
    })
}
