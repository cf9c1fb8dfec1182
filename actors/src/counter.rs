//! The counter: slots that the Claimer lends to those who write tasks.
//!
//! A task that is due when it is written, by a process that has a free slot for it, is written already claimed: one
//! commit instead of two, and no look for it. The Claimer lends the free slots of topics that have nothing waiting, as
//! far as it knows, and calls them in before it claims for the topic again. Whoever writes a task takes a ticket first. A
//! ticket goes back by being used or dropped; both are told to the Claimer, which counts what it lent as taken until
//! then.
//!
//! The Claimer stays the owner of every slot. The lock is held for a look into a map, by no one who waits for anything.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use punctual_domain::id::NodeId;
use punctual_domain::store::{Settling, Store, StoreError};
use punctual_domain::task::{Due, NewTask, Settlement, Task};
use punctual_domain::topic::Topic;
use ractor::{ActorRef, MessagingErr};
use tokio::time::Instant;

use crate::claimer::ClaimerMessage;
use crate::dispatcher::DispatcherMessage;

/// What is lent. It is asked by callers who cannot wait for a mailbox.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<Mutex<Loans>>);

#[derive(Default)]
struct Loans {
    by_topic: HashMap<Topic, Loan>,
    /// Changes of topics that the Claimer has not heard of: nothing is begun by what they were before.
    changes: u32,
}

/// The lent slots of a topic that nobody has taken yet.
struct Loan {
    slots: u32,
    dispatcher: ActorRef<DispatcherMessage>,
    claimer: ActorRef<ClaimerMessage>,
}

impl Counter {
    /// Lends so many more slots of a topic.
    pub(crate) fn lend(
        &self,
        topic: &Topic,
        slots: u32,
        dispatcher: &ActorRef<DispatcherMessage>,
        claimer: &ActorRef<ClaimerMessage>,
    ) {
        let loans = &mut self.loans().by_topic;
        let loan = Loan { slots, dispatcher: dispatcher.clone(), claimer: claimer.clone() };
        match loans.get_mut(topic) {
            Some(lent) if lent.dispatcher.get_id() == dispatcher.get_id() => lent.slots += slots,
            _ => {
                loans.insert(topic.clone(), loan);
            }
        }
    }

    /// Takes back what nobody has taken of a topic; answers how many slots that were.
    pub(crate) fn call_in(&self, topic: &Topic) -> u32 {
        self.loans().by_topic.remove(topic).map_or(0, |loan| loan.slots)
    }

    /// Takes back everything.
    pub(crate) fn close(&self) {
        *self.loans() = Loans::default();
    }

    /// Definitions of topics changed: no ticket is given until the Claimer has heard of it.
    pub(crate) fn shut(&self) {
        self.loans().changes += 1;
    }

    /// The Claimer has heard of one such change.
    pub(crate) fn reopen(&self) {
        let mut loans = self.loans();
        loans.changes = loans.changes.saturating_sub(1);
    }

    /// A lent slot for a task, if it may be written claimed and there is one.
    pub(crate) fn ticket(&self, task: &NewTask) -> Option<Ticket> {
        if task.due != Due::Now || !task.is_plain() {
            return None;
        }
        let mut loans = self.loans();
        if loans.changes > 0 {
            return None;
        }
        let loan = loans.by_topic.get_mut(&task.topic)?;
        loan.slots = loan.slots.checked_sub(1)?;
        Some(Ticket {
            topic: task.topic.clone(),
            dispatcher: loan.dispatcher.clone(),
            claimer: loan.claimer.clone(),
            is_used: false,
        })
    }

    fn loans(&self) -> MutexGuard<'_, Loans> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What became of a task that was to begin as it was written; as it was before its claim.
#[derive(Debug)]
pub enum Begun {
    /// It has begun.
    Here(Task),
    /// Nobody was there to begin it any more: it waits to be claimed, and whoever may do so is to be told.
    Elsewhere(Task),
}

/// The right to use one slot.
pub(crate) struct Ticket {
    topic: Topic,
    dispatcher: ActorRef<DispatcherMessage>,
    claimer: ActorRef<ClaimerMessage>,
    is_used: bool,
}

impl Ticket {
    /// Writes a task claimed by the node, and begins it.
    pub(crate) async fn write(
        mut self,
        store: &dyn Store,
        task: NewTask,
        node: NodeId,
        lease: Duration,
    ) -> Result<Begun, StoreError> {
        let sent_at = Instant::now();
        let written = task.clone();
        let claimed = store.claim_new(task, node, lease).await?;
        let written = written.into_task(claimed.run_at, claimed.created_at);
        // The Dispatcher first: one that the Claimer lets go on hearing of the ticket must have the task by then.
        let run = DispatcherMessage::Run { tasks: vec![claimed], sent_at, claimer: self.claimer.get_id() };
        if let Err(unsent) = self.dispatcher.cast(run) {
            if let MessagingErr::SendErr(DispatcherMessage::Run { tasks, .. }) = unsent {
                hand_back(store, &tasks).await;
            }
            return Ok(Begun::Elsewhere(written));
        }
        self.is_used = true;
        Ok(Begun::Here(written))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let back = ClaimerMessage::TicketBack {
            topic: self.topic.clone(),
            dispatcher: self.dispatcher.get_id(),
            is_used: self.is_used,
        };
        // A Claimer that is gone counts anew.
        let _ = self.claimer.cast(back);
    }
}

/// A Dispatcher that is gone begins nothing: whoever claims the tasks next does.
async fn hand_back(store: &dyn Store, tasks: &[Task]) {
    let settlings =
        tasks.iter().map(|task| Settling { task_id: task.id, epoch: task.epoch, settlement: Settlement::HandedBack });
    if let Err(error) = store.settle(settlings.collect()).await {
        tracing::warn!(%error, "a task was not handed back, its lease will tell");
    }
}
