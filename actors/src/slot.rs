//! A slot: the handler actor that performs one attempt at a time for its Dispatcher.
//!
//! The attempt runs in a task of its own, never inside `handle`, so that the slot stays responsive and a panic hurts
//! nobody else. Its outcome goes to the Settler; the Dispatcher learns that the slot is free.

use std::sync::Arc;

use punctual_domain::clock::Clock;
use punctual_domain::id::TaskId;
use punctual_domain::store::Settling;
use punctual_domain::task::Task;
use punctual_sdk::Handler;
use ractor::{Actor, ActorProcessingErr, ActorRef};

use crate::attempt::{Stops, perform};
use crate::dispatcher::DispatcherMessage;
use crate::settler::{Ended, SettlerMessage};

pub(crate) enum SlotMessage {
    /// Perform an attempt.
    Begin(Box<Assignment>),
}

/// One attempt to perform.
pub(crate) struct Assignment {
    pub(crate) handler: Arc<dyn Handler>,
    pub(crate) task: Task,
    pub(crate) stops: Stops,
    pub(crate) settler: ActorRef<SettlerMessage>,
}

/// Configuration of a slot.
pub(crate) struct Slot {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) dispatcher: ActorRef<DispatcherMessage>,
}

impl Actor for Slot {
    type Msg = SlotMessage;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<SlotMessage>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(
        &self,
        myself: ActorRef<SlotMessage>,
        SlotMessage::Begin(assignment): SlotMessage,
        (): &mut (),
    ) -> Result<(), ActorProcessingErr> {
        let (clock, dispatcher) = (self.clock.clone(), self.dispatcher.clone());
        tokio::spawn(async move {
            let Assignment { handler, task, stops, settler } = *assignment;
            let settlement = perform(&handler, &task, &stops, clock.now()).await;
            let task_id: TaskId = task.id;
            if let Some(settlement) = settlement {
                // It, or one that waited for it, becomes due at an instant the Claimer does not know yet.
                let unblocks = task.serial_key.is_some() || !settlement.status().has_ended();
                let settling = Settling { task_id, epoch: task.epoch, settlement };
                let ended = Ended { settling, unblocks };
                // A Settler that is gone leaves the task to its lease.
                let _ = settler.cast(SettlerMessage::Settle(Box::new(ended)));
            }
            // A Dispatcher that is gone has no use for the slot.
            let _ = dispatcher.cast(DispatcherMessage::Ended { task_id, epoch: task.epoch, slot: myself });
        });
        Ok(())
    }
}
