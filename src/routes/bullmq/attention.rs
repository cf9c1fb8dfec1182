//! What the keeper of hand-overs is to look after now, told by others of this process.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use punctual_domain::hand_over::Queue;
use punctual_domain::id::TaskId;
use tokio::sync::Notify;

/// How much is remembered; what is more, the keeper finds by itself.
const MOST: usize = 10_000;

/// What to look after.
#[derive(Default)]
pub(crate) struct Attention {
    wanted: Mutex<Wanted>,
    /// There is something to look after.
    pub(super) rung: Notify,
    /// There is a queue that was not there.
    pub(super) widened: Notify,
}

/// What was asked for.
#[derive(Default)]
pub(super) struct Wanted {
    /// Jobs that have ended.
    pub(super) jobs: Vec<(Queue, String)>,
    /// Tasks that were cancelled, or failed because their time was up.
    pub(super) cancelled: Vec<TaskId>,
    known: HashSet<Queue>,
}

impl Attention {
    /// Something was handed to a queue.
    pub(crate) fn handed_to(&self, queue: &Queue) {
        if self.with(|wanted| !wanted.known.contains(queue) && wanted.known.insert(queue.clone())) {
            self.widened.notify_one();
        }
    }

    /// A job has ended, and nobody may have heard of it.
    pub(crate) fn ended(&self, queue: &Queue, job_id: &str) {
        self.with(|wanted| {
            if wanted.jobs.len() < MOST {
                wanted.jobs.push((queue.clone(), job_id.to_owned()));
            }
        });
        self.rung.notify_one();
    }

    /// A task was cancelled, or its time is up; a queue may have it. One that is not remembered is found by the next round.
    pub(crate) fn cancelled(&self, id: TaskId) {
        self.with(|wanted| {
            if wanted.cancelled.len() < MOST {
                wanted.cancelled.push(id);
            }
        });
        self.rung.notify_one();
    }

    /// Takes what was asked for.
    pub(super) fn take(&self) -> (Vec<(Queue, String)>, Vec<TaskId>) {
        self.with(|wanted| (std::mem::take(&mut wanted.jobs), std::mem::take(&mut wanted.cancelled)))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Wanted) -> T) -> T {
        act(&mut self.wanted.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
