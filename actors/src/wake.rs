//! Wake-ups: an actor asks to be sent a message at an instant of the project's clock, or after a while by the monotonic
//! one, at most one at a time.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use ractor::{ActorRef, Message};
use tokio::task::JoinHandle;

/// The one pending wake-up of an actor. Setting it again forgets the earlier one; dropping it forgets it altogether.
#[derive(Default)]
pub(crate) struct Alarm {
    pending: Option<JoinHandle<()>>,
    /// When that is, if it waits for an instant.
    at: Option<DateTime<Utc>>,
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
        self.set_when(clock.sleep_until(at), actor, message);
        self.at = Some(at);
    }

    /// Sends `message` to `actor` after a while, whatever the clock shows then: for those who look again, not for those who
    /// wait for an instant.
    pub(crate) fn set_after<M: Message>(&mut self, wait: Duration, actor: &ActorRef<M>, message: M) {
        self.set_when(tokio::time::sleep(wait), actor, message);
    }

    fn set_when<M: Message>(
        &mut self,
        moment: impl Future<Output = ()> + Send + 'static,
        actor: &ActorRef<M>,
        message: M,
    ) {
        self.clear();
        let actor = actor.clone();
        self.pending = Some(tokio::spawn(async move {
            moment.await;
            // An actor that is gone does not need to be woken.
            let _ = actor.cast(message);
        }));
    }

    /// When the pending wake-up is, if it waits for an instant.
    pub(crate) fn at(&self) -> Option<DateTime<Utc>> {
        self.at
    }

    /// Forgets the pending wake-up.
    pub(crate) fn clear(&mut self) {
        self.at = None;
        if let Some(waiting) = self.pending.take() {
            waiting.abort();
        }
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.clear();
    }
}
