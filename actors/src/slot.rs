//! A slot: the handler actor that performs one attempt at a time for its Dispatcher.
//!
//! It is given a share of attempts and begins them one after the other. What is done at once, as most is, costs neither a
//! task nor a message of its own. An attempt that has to wait goes on in a task, which ends with the slot; the rest of
//! the share goes back to the Dispatcher, for other slots. So does what is left when the share has taken too long.
//! How attempts ended goes to the Dispatcher.
//!
//! A panic is caught here, and the slot goes on: it is the attempt's outcome, with its message, and its task is retried by its
//! policy at once. A slot that ended and was started again would know nothing of it, leave the task to its lease, count a loss,
//! and use up the restarts that are there for failures of our own.

use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use punctual_domain::clock::Clock;
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::task::{Settlement, Task};
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::attempt::{Stop, Stops, after_panic, perform};
use crate::dispatcher::DispatcherMessage;
use crate::serving::Performer;

/// How long a share may keep its slot before what is left of it goes elsewhere.
const LONGEST_SHARE: Duration = Duration::from_millis(1);

pub(crate) enum SlotMessage {
    /// Perform attempts, one after the other.
    Begin(Vec<Assignment>),
}

/// One attempt to perform.
pub(crate) struct Assignment {
    pub(crate) handler: Arc<Performer>,
    pub(crate) task: Task,
    pub(crate) stops: Stops,
}

/// How an attempt ended. No settlement: what became of it is not ours to say.
pub(crate) struct AttemptEnd {
    pub(crate) attempt: (TaskId, Epoch),
    pub(crate) settlement: Option<Settlement>,
    /// How long it took.
    pub(crate) elapsed: Duration,
}

/// What became of a share, or of an attempt that had to wait.
pub(crate) struct Ends {
    pub(crate) ends: Vec<AttemptEnd>,
    /// Attempts that were not begun.
    pub(crate) left: Vec<Assignment>,
    /// The slot, if it is free.
    pub(crate) slot: Option<ActorRef<SlotMessage>>,
    pub(crate) pace: Pace,
}

/// How attempts went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Pace {
    /// Each was done as soon as it had begun.
    AtOnce,
    /// One had to wait, or took its time.
    Waited,
}

/// Configuration of a slot.
pub(crate) struct Slot {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dispatcher: ActorRef<DispatcherMessage>,
}

impl Actor for Slot {
    type Msg = SlotMessage;
    /// The attempt that waits for something: a slot that ends takes it along.
    type State = Option<AbortOnDropHandle<()>>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<SlotMessage>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        Ok(None)
    }

    async fn handle(
        &self,
        myself: ActorRef<SlotMessage>,
        SlotMessage::Begin(share): SlotMessage,
        waiting: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let begun_at = Instant::now();
        let mut ends = Vec::with_capacity(share.len());
        let mut share = share.into_iter();
        let mut pace = Pace::AtOnce;
        while pace == Pace::AtOnce
            && let Some(assignment) = share.next()
        {
            let mut attempt = attempt(assignment, self.clock.clone());
            match poll_fn(|cx| Poll::Ready(attempt.poll_unpin(cx))).await {
                Poll::Ready(end) => ends.push(end),
                Poll::Pending => {
                    // The Dispatcher hears of the others first: the attempt's own end frees the slot.
                    if !ends.is_empty() || share.len() > 0 {
                        self.tell(Ends { ends, left: share.collect(), slot: None, pace: Pace::Waited });
                    }
                    *waiting = Some(self.go_on(attempt, myself));
                    return Ok(());
                }
            }
            if begun_at.elapsed() > LONGEST_SHARE {
                pace = Pace::Waited;
            }
        }
        self.tell(Ends { ends, left: share.collect(), slot: Some(myself), pace });
        Ok(())
    }
}

impl Slot {
    /// Lets an attempt that has to wait go on beside the mailbox.
    fn go_on(&self, attempt: BoxFuture<'static, AttemptEnd>, myself: ActorRef<SlotMessage>) -> AbortOnDropHandle<()> {
        let dispatcher = self.dispatcher.clone();
        AbortOnDropHandle::new(tokio::spawn(async move {
            let ends = vec![attempt.await];
            let ends = Ends { ends, left: Vec::new(), slot: Some(myself), pace: Pace::Waited };
            // A Dispatcher that is gone has no use for the outcome; the lease will tell.
            let _ = dispatcher.cast(DispatcherMessage::Ended(ends));
        }))
    }

    fn tell(&self, ends: Ends) {
        // A Dispatcher that is gone has no use for the outcomes; the leases will tell.
        let _ = self.dispatcher.cast(DispatcherMessage::Ended(ends));
    }
}

/// Performs an attempt, unless it was told to stop before it began.
fn attempt(Assignment { handler, task, stops }: Assignment, clock: Arc<dyn Clock>) -> BoxFuture<'static, AttemptEnd> {
    Box::pin(async move {
        let began_at = Instant::now();
        let settlement = match stops.why() {
            Some(Stop::Cancelled | Stop::LeaseEnding) => None,
            Some(Stop::HandBack) => Some(Settlement::HandedBack),
            None => {
                let performing = AssertUnwindSafe(perform(&handler, &task, &stops, clock.now())).catch_unwind();
                // A panic that escaped the attempt came from dropping the handler's work.
                performing.await.unwrap_or_else(|panic| Some(after_panic(&task, &*panic)))
            }
        };
        AttemptEnd { attempt: (task.id, task.epoch), settlement, elapsed: began_at.elapsed() }
    })
}
