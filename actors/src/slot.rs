//! A slot: the handler actor that performs one attempt at a time for its Dispatcher.
//!
//! The attempt runs in a task of its own, never inside `handle`, so that the slot stays responsive and a panic hurts
//! nobody else. The task ends with the slot. How it ended goes to the Dispatcher.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use futures::FutureExt;
use punctual_domain::clock::Clock;
use punctual_domain::task::Task;
use ractor::{Actor, ActorProcessingErr, ActorRef};
use tokio::time::Instant;
use tokio_util::task::AbortOnDropHandle;

use crate::attempt::{Stops, after_panic, perform};
use crate::dispatcher::{DispatcherMessage, EndedAttempt};
use crate::serving::Performer;

pub(crate) enum SlotMessage {
    /// Perform an attempt.
    Begin(Box<Assignment>),
}

/// One attempt to perform.
pub(crate) struct Assignment {
    pub(crate) handler: Arc<Performer>,
    pub(crate) task: Task,
    pub(crate) stops: Stops,
}

/// Configuration of a slot.
pub(crate) struct Slot {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dispatcher: ActorRef<DispatcherMessage>,
}

impl Actor for Slot {
    type Msg = SlotMessage;
    /// The attempt that runs: a slot that ends takes it along.
    type State = Option<AbortOnDropHandle<()>>;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<SlotMessage>, (): ()) -> Result<Self::State, ActorProcessingErr> {
        Ok(None)
    }

    async fn handle(
        &self,
        myself: ActorRef<SlotMessage>,
        SlotMessage::Begin(assignment): SlotMessage,
        running: &mut Self::State,
    ) -> Result<(), ActorProcessingErr> {
        let (clock, dispatcher) = (self.clock.clone(), self.dispatcher.clone());
        *running = Some(AbortOnDropHandle::new(tokio::spawn(async move {
            let Assignment { handler, task, stops } = &*assignment;
            let began_at = Instant::now();
            let performing = AssertUnwindSafe(perform(handler, task, stops, clock.now())).catch_unwind();
            // A panic that escaped the attempt came from dropping the handler's work.
            let settlement = performing.await.unwrap_or_else(|panic| Some(after_panic(task, &*panic)));
            // A Dispatcher that is gone has no use for the outcome; the lease will tell.
            let (attempt, elapsed) = ((task.id, task.epoch), began_at.elapsed());
            let ended = EndedAttempt { attempt, settlement, elapsed, slot: myself };
            let _ = dispatcher.cast(DispatcherMessage::Ended(ended));
        })));
        Ok(())
    }
}
