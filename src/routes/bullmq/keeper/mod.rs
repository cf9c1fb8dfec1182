//! The keeper of hand-overs: what queues say becomes the tasks' outcomes, and what queues have lost is handed over again.
//!
//! *Following.* One node follows a queue's events, the one that holds the queue's leadership; another takes over when it is
//! gone. Up to where they were read is kept in the database after what they said was written: a restart repeats a little,
//! and never skips. Whatever is repeated finds the task ended, and changes nothing.
//!
//! *Healing.* Events can be trimmed before they are read, and a queue can lose its jobs. So whoever begins to follow a queue looks up
//! every job of it, and again now and then, at once if Redis shows that it has forgotten: what has ended is settled, and what is missing is handed over again.
//! So are messages that went to a queue, until their jobs have ended. A job can be missing because it ended and was removed: its end
//! stands in the events, which are read to their end before anything is handed over again.
//!
//! *Attempts.* A try that failed is an attempt that ended, and the next one begins when a worker takes the job again. How many have failed
//! the job itself counts; events say when. A try that its worker put off, or that got lost, is not counted, and the attempt goes on.
//!
//! *Attending.* A cancelled task's job is removed if it waits, also when it waits for its next try later, or when the node that made it
//! crashed before it noted that; and a task whose time is up fails. Whoever cancels a task notes by the same transaction that its job is to
//! be looked after: who is told of it here is faster, and what nobody told is found by the next round.
//!
//! A queue that Redis refuses to show, such as one whose keys are of other types, is left out until it is mended.
//!
//! Redis may be away, flushed or slow: nothing here is waited for by anybody else, and what was not done is done later.

mod clear;
mod follow;
mod heal;
mod record;

use std::sync::Arc;
use std::time::Duration;

use punctual_domain::hand_over::Queue;
use punctual_domain::id::NodeId;
use punctual_domain::store::Store;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;
use tracing::error;

use super::attention::Attention;
use super::redis::Queues;
use crate::store_time::StoreTime;
use crate::topics::TopicDirectory;
use crate::wake::Wake;

/// How many jobs are looked up together.
const PAGE: u32 = 200;
/// How long to wait after Redis or the database did not answer.
const AFTER_ERROR: Duration = Duration::from_millis(500);

/// What a keeper works with.
pub(crate) struct Parts {
    pub(crate) queues: Queues,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attention: Arc<Attention>,
    pub(crate) topics: Arc<TopicDirectory>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) node: NodeId,
    /// How long a round lasts.
    pub(crate) every: Duration,
}

/// A keeper at work; ends with it.
pub(crate) struct Keeper {
    work: Arc<Work>,
    running: AbortOnDropHandle<()>,
}

impl Keeper {
    pub(crate) fn start(parts: Parts) -> Self {
        let work = Arc::new(Work(parts));
        let running = tokio::spawn(keep(Arc::clone(&work)));
        Self { work, running: AbortOnDropHandle::new(running) }
    }

    /// Ends, and lets other nodes follow at once.
    pub(crate) async fn stop(self) {
        self.running.abort();
        let Ok(queues) = self.work.0.store.queues().await else { return };
        for (queue, _) in queues {
            // Whoever does not hear of it waits for the lease to end.
            let _ = self.work.0.store.resign(&leadership(&queue), self.work.0.node).await;
        }
    }
}

/// Works until it is aborted, whatever happens.
async fn keep(work: Arc<Work>) {
    loop {
        let (following, attending) = (Arc::clone(&work), Arc::clone(&work));
        let mut following = AbortOnDropHandle::new(tokio::spawn(async move { following.follow().await }));
        let mut attending = AbortOnDropHandle::new(tokio::spawn(async move { attending.attend().await }));
        let broke = tokio::select! {
            broke = &mut following => broke,
            broke = &mut attending => broke,
        };
        if let Err(error) = broke {
            error!(%error, "the keeper of hand-overs broke off, and begins again");
        }
        sleep(AFTER_ERROR).await;
    }
}

struct Work(Parts);

/// The leadership of who follows a queue.
fn leadership(queue: &Queue) -> String {
    format!("queue {queue}")
}
