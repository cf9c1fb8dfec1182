//! How many messages wait for an actor.
//!
//! A mailbox does not tell its length. But it is first in, first out: what an actor handles between the moment a question is
//! sent to it and the moment it handles that question is what was waiting before it. So an actor counts what it handles, and
//! nobody counts what is sent; looking costs one message, and not looking an addition per message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::future::BoxFuture;
use ractor::{Actor, ActorCell, ActorProcessingErr, ActorRef, Message, SpawnErr, SupervisionEvent};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// How long an actor may take to answer before it counts as busy.
const PATIENCE: Duration = Duration::from_millis(500);

/// What an actor's mailbox looked like when it was asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Mailbox {
    /// How many messages were waiting.
    pub waiting: u64,
    /// How long it took until they were handled.
    pub answered_in: Duration,
}

/// How many messages an actor has begun to handle.
#[derive(Debug, Clone, Default)]
pub(crate) struct Handled(Arc<AtomicU64>);

impl Handled {
    /// A question whose moment is now.
    pub(crate) fn question(&self) -> Question {
        Question { then: self.0.load(Ordering::Relaxed), handled: self.clone(), asked_at: Instant::now() }
    }

    /// Only the actor itself counts, so nobody's addition is lost.
    fn one_more(&self) {
        self.0.store(self.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
    }
}

/// A question on its way through a mailbox.
#[derive(Debug)]
pub(crate) struct Question {
    handled: Handled,
    then: u64,
    asked_at: Instant,
}

impl Question {
    /// The answer of the actor that handles it.
    pub(crate) fn answer(&self) -> Mailbox {
        // The question itself is one of those that were handled since.
        let since = self.handled.0.load(Ordering::Relaxed).saturating_sub(self.then);
        Mailbox { waiting: since.saturating_sub(1), answered_in: self.asked_at.elapsed() }
    }
}

/// A question with the way back.
#[derive(Debug)]
pub(crate) struct Probe {
    question: Question,
    reply: oneshot::Sender<Mailbox>,
    /// Whoever answers it fails.
    #[cfg(test)]
    is_poisoned: bool,
}

impl Probe {
    /// Answers it; whoever asked may have stopped waiting.
    pub(crate) fn answer(self) {
        #[cfg(test)]
        assert!(!self.is_poisoned, "poisoned");
        let _ = self.reply.send(self.question.answer());
    }
}

/// An actor whose mailbox can be looked at.
pub(crate) struct Post<M: Message> {
    actor: ActorRef<M>,
    handled: Handled,
}

impl<M: Message> Post<M> {
    /// Starts an actor.
    pub(crate) async fn spawn_linked<A: Actor<Msg = M> + Sync>(
        actor: A,
        arguments: A::Arguments,
        supervisor: ActorCell,
    ) -> Result<Self, SpawnErr> {
        let handled = Handled::default();
        let counted = Counted { actor, handled: handled.clone() };
        let (actor, _) = Actor::spawn_linked(None, counted, arguments, supervisor).await?;
        Ok(Self { actor, handled })
    }

    /// Asks it; the answer is none if it is gone or busy.
    pub(crate) fn look(&self, ask: fn(Probe) -> M) -> BoxFuture<'static, Option<Mailbox>> {
        let (reply, answer) = oneshot::channel();
        let probe = Probe {
            question: self.handled.question(),
            reply,
            #[cfg(test)]
            is_poisoned: false,
        };
        let is_sent = self.actor.cast(ask(probe)).is_ok();
        Box::pin(async move {
            if !is_sent {
                return None;
            }
            tokio::time::timeout(PATIENCE, answer).await.ok()?.ok()
        })
    }

    /// Has it fail.
    #[cfg(test)]
    pub(crate) fn fail(&self, ask: fn(Probe) -> M) {
        let (reply, _) = oneshot::channel();
        // One that is gone has failed already.
        let _ = self.actor.cast(ask(Probe { question: self.handled.question(), reply, is_poisoned: true }));
    }
}

impl<M: Message> std::ops::Deref for Post<M> {
    type Target = ActorRef<M>;

    fn deref(&self) -> &ActorRef<M> {
        &self.actor
    }
}

/// Starts an actor that nobody supervises, and counts what it handles.
pub(crate) async fn spawn<A: Actor + Sync>(
    actor: A,
    arguments: A::Arguments,
    handled: Handled,
) -> Result<(ActorRef<A::Msg>, JoinHandle<()>), SpawnErr> {
    Actor::spawn(None, Counted { actor, handled }, arguments).await
}

/// An actor that counts what it handles, and is otherwise as it was.
struct Counted<A> {
    actor: A,
    handled: Handled,
}

impl<A: Actor + Sync> Actor for Counted<A> {
    type Msg = A::Msg;
    type State = A::State;
    type Arguments = A::Arguments;

    async fn pre_start(
        &self,
        myself: ActorRef<A::Msg>,
        arguments: A::Arguments,
    ) -> Result<A::State, ActorProcessingErr> {
        self.actor.pre_start(myself, arguments).await
    }

    async fn post_start(&self, myself: ActorRef<A::Msg>, state: &mut A::State) -> Result<(), ActorProcessingErr> {
        self.actor.post_start(myself, state).await
    }

    async fn post_stop(&self, myself: ActorRef<A::Msg>, state: &mut A::State) -> Result<(), ActorProcessingErr> {
        self.actor.post_stop(myself, state).await
    }

    async fn handle(
        &self,
        myself: ActorRef<A::Msg>,
        message: A::Msg,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        self.handled.one_more();
        self.actor.handle(myself, message, state).await
    }

    async fn handle_supervisor_evt(
        &self,
        myself: ActorRef<A::Msg>,
        event: SupervisionEvent,
        state: &mut A::State,
    ) -> Result<(), ActorProcessingErr> {
        self.actor.handle_supervisor_evt(myself, event, state).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::sync::Notify;

    enum SleeperMessage {
        Wait(Arc<Notify>),
        Nothing,
        Probe(Probe),
    }

    struct Sleeper;

    impl Actor for Sleeper {
        type Msg = SleeperMessage;
        type State = ();
        type Arguments = ();

        async fn pre_start(&self, _: ActorRef<SleeperMessage>, (): ()) -> Result<(), ActorProcessingErr> {
            Ok(())
        }

        async fn handle(
            &self,
            _: ActorRef<SleeperMessage>,
            message: SleeperMessage,
            (): &mut (),
        ) -> Result<(), ActorProcessingErr> {
            match message {
                SleeperMessage::Wait(until) => until.notified().await,
                SleeperMessage::Nothing => {}
                SleeperMessage::Probe(probe) => probe.answer(),
            }
            Ok(())
        }
    }

    async fn sleeper() -> Post<SleeperMessage> {
        let handled = Handled::default();
        let (actor, _) = spawn(Sleeper, (), handled.clone()).await.unwrap();
        Post { actor, handled }
    }

    #[tokio::test]
    async fn what_waits_before_the_question_is_counted_and_what_comes_after_is_not() {
        let sleeper = sleeper().await;
        let until = Arc::new(Notify::new());
        sleeper.cast(SleeperMessage::Wait(until.clone())).unwrap();
        // Until it handles that one, it waits as well.
        while sleeper.handled.0.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        for _ in 0..3 {
            sleeper.cast(SleeperMessage::Nothing).unwrap();
        }
        let answer = sleeper.look(SleeperMessage::Probe);
        sleeper.cast(SleeperMessage::Nothing).unwrap();
        until.notify_one();
        assert_eq!(answer.await.unwrap().waiting, 3);
        assert_eq!(sleeper.look(SleeperMessage::Probe).await.unwrap().waiting, 0);
        sleeper.stop(None);
    }

    #[tokio::test]
    async fn an_actor_that_is_gone_answers_nothing() {
        let sleeper = sleeper().await;
        sleeper.stop_and_wait(None, None).await.unwrap();
        assert_eq!(sleeper.look(SleeperMessage::Probe).await, None);
    }
}
