//! Wake-ups by the project's clock: an actor asks to be sent a message at an instant, at most one at a time.

use std::sync::Arc;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use ractor::{ActorRef, Message};
use tokio::task::JoinHandle;

/// The one pending wake-up of an actor. Setting it again forgets the earlier one; dropping it forgets it altogether.
#[derive(Default)]
pub(crate) struct Alarm {
    pending: Option<(DateTime<Utc>, JoinHandle<()>)>,
}

impl Alarm {
    /// Sends `message` to `actor` once the clock shows `at`.
    pub(crate) fn set<M: Message>(
        &mut self,
        clock: &Arc<dyn Clock>,
        at: DateTime<Utc>,
        actor: &ActorRef<M>,
        message: M,
    ) {
        self.clear();
        let (sleep, actor) = (clock.sleep_until(at), actor.clone());
        let waiting = tokio::spawn(async move {
            sleep.await;
            // An actor that is gone does not need to be woken.
            let _ = actor.cast(message);
        });
        self.pending = Some((at, waiting));
    }

    /// When the pending wake-up is.
    pub(crate) fn at(&self) -> Option<DateTime<Utc>> {
        self.pending.as_ref().map(|(at, _)| *at)
    }

    /// Forgets the pending wake-up.
    pub(crate) fn clear(&mut self) {
        if let Some((_, waiting)) = self.pending.take() {
            waiting.abort();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clear();
    }
}
