use std::sync::atomic::{AtomicBool, Ordering};

use futures::future::BoxFuture;
use punctual_domain::clock::FakeClock;
use punctual_domain::id::NodeId;
use punctual_domain::task::NewTask;
use punctual_sdk::{Attempt, Handler, Outcome};
use punctual_store::Options;
use ractor::Message;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, error::TryRecvError, unbounded_channel};

use super::*;
use crate::serving::Performer;

/// An actor that passes on all it is told.
struct Ear<M>(UnboundedSender<M>);

impl<M: Message> Actor for Ear<M> {
    type Msg = M;
    type State = ();
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<M>, (): ()) -> Result<(), ActorProcessingErr> {
        Ok(())
    }

    async fn handle(&self, _: ActorRef<M>, message: M, (): &mut ()) -> Result<(), ActorProcessingErr> {
        // The test may have heard enough.
        let _ = self.0.send(message);
        Ok(())
    }
}

async fn ear<M: Message>() -> (ActorRef<M>, UnboundedReceiver<M>) {
    let (sender, heard) = unbounded_channel();
    let (actor, _) = Actor::spawn(None, Ear(sender), ()).await.unwrap();
    (actor, heard)
}

/// A clock that fails whoever asks it, once it is told to; of a Dispatcher's, only slots do.
struct Failing {
    clock: FakeClock,
    fails: AtomicBool,
}

impl Clock for Failing {
    fn now(&self) -> DateTime<Utc> {
        assert!(!self.fails.load(Ordering::SeqCst), "no time to tell");
        self.clock.now()
    }

    fn sleep_until(&self, at: DateTime<Utc>) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

/// A Dispatcher between a Claimer and a Settler that only listen. Time stands still but for what is waited for.
struct Scene {
    dispatcher: ActorRef<DispatcherMessage>,
    clock: Arc<Failing>,
    claimer: ActorRef<ClaimerMessage>,
    claims: UnboundedReceiver<ClaimerMessage>,
    settles: UnboundedReceiver<SettlerMessage>,
    settings: Settings,
}

impl Scene {
    /// The store answers nothing in time: nobody extends a lease.
    async fn set(handler: impl Handler + 'static, rate_per_second: Option<f64>) -> Self {
        let options = Options { deadline: Duration::ZERO, ..Options::default() };
        let store = punctual_store::connect("sqlite::memory:", options).await.unwrap();
        tokio::time::pause();
        let clock = FakeClock::at_text("2026-11-16T12:00:00Z");
        let clock = Arc::new(Failing { clock, fails: AtomicBool::new(false) });
        let settings = Settings::default();
        let (settler, settles) = ear().await;
        let (claimer, claims) = ear().await;
        let handler = Arc::new(Performer::of("", Arc::new(handler)));
        let server = Server { handler, concurrency: 50, rate_per_second, label: "mail".into() };
        let dispatcher = Dispatcher { store, clock: clock.clone(), settings, topic: "mail".parse().unwrap() };
        let start = super::Start { server, settler, claimer: claimer.clone() };
        let (dispatcher, _) = Actor::spawn(None, dispatcher, start).await.unwrap();
        Self { dispatcher, clock, claimer, claims, settles, settings }
    }

    /// Hands over claimed tasks, which have lost so many attempts before.
    fn hand_over(&self, count: usize, lost: u32) -> Vec<TaskId> {
        let now = self.clock.clock.now();
        let claimed = |_| {
            let new = NewTask::new("mail".parse().unwrap());
            let task = new.into_task(now, now).claim(NodeId::generate(), self.settings.lease, now).unwrap();
            Task { lost: task.lost + lost, ..task }
        };
        let tasks: Vec<_> = (0..count).map(claimed).collect();
        let ids = tasks.iter().map(|task| task.id).collect();
        let run = DispatcherMessage::Run { tasks, sent_at: Instant::now(), claimer: self.claimer.get_id() };
        self.dispatcher.cast(run).unwrap();
        ids
    }

    /// What it says next of its free slots: how many there are, and how many tasks it has received.
    async fn free(&mut self) -> (u32, u64) {
        match self.claims.recv().await.unwrap() {
            ClaimerMessage::SlotsFree { slots, received, .. } => (slots, received),
            _ => panic!("something else"),
        }
    }

    /// The tasks of the next outcomes.
    async fn settled(&mut self) -> Vec<TaskId> {
        match self.settles.recv().await.unwrap() {
            SettlerMessage::Settle(ended) => ended.iter().map(|ended| ended.settling.task_id).collect(),
            _ => panic!("something else"),
        }
    }
}

async fn at_once(_: Attempt) -> Outcome {
    Outcome::completed()
}

/// How far from its instant something may be heard of: the pulse is as fast as this.
const PULSE: Duration = Duration::from_millis(60);

#[tokio::test]
async fn no_more_attempts_begin_than_the_rate_allows_and_no_more_than_a_second_of_it_is_saved_up() {
    let mut scene = Scene::set(at_once, Some(4.0)).await;
    assert_eq!(scene.free().await, (4, 0));
    let handed_over_at = Instant::now();
    scene.hand_over(4, 0);
    assert_eq!(scene.free().await, (0, 4));
    for slots in 1..=4 {
        assert_eq!(scene.free().await, (slots, 4));
        let due = Duration::from_millis(250) * slots;
        let after = handed_over_at.elapsed();
        assert!(after + PULSE >= due && after <= due + PULSE, "{slots} after {after:?}");
    }
    // With nothing to do it wants to end, and has not saved up more by then.
    assert!(matches!(scene.claims.recv().await.unwrap(), ClaimerMessage::Retiring { .. }));
    assert!(handed_over_at.elapsed() >= scene.settings.idle_dispatcher);
    scene.dispatcher.stop(None);
}

#[tokio::test]
async fn a_rate_below_one_allows_one_attempt_at_a_time_and_what_was_too_much_is_made_up_for() {
    let mut scene = Scene::set(at_once, Some(0.5)).await;
    assert_eq!(scene.free().await, (1, 0));
    let handed_over_at = Instant::now();
    // One more than allowed, as two claims that cross may bring.
    scene.hand_over(2, 0);
    assert_eq!(scene.free().await, (0, 2));
    assert_eq!(scene.free().await, (1, 2));
    let after = handed_over_at.elapsed();
    let due = Duration::from_secs(4);
    assert!(after + PULSE >= due && after <= due + PULSE, "{after:?}");
    scene.dispatcher.stop(None);
}

#[tokio::test]
async fn without_a_rate_all_slots_are_free_again_as_attempts_end() {
    let mut scene = Scene::set(at_once, None).await;
    assert_eq!(scene.free().await, (50, 0));
    let ids = scene.hand_over(1, 0);
    assert_eq!(scene.settled().await, ids);
    assert_eq!(scene.free().await, (50, 1));
    scene.dispatcher.stop(None);
}

#[tokio::test]
async fn an_attempt_whose_lease_nobody_extends_is_told_to_stop_before_it_ends() {
    let (told, mut hears) = unbounded_channel();
    let waits = move |attempt: Attempt| {
        let told = told.clone();
        async move {
            attempt.cancelled.cancelled().await;
            told.send(Instant::now()).unwrap();
            // Too late to say that it is done.
            Outcome::completed()
        }
    };
    let mut scene = Scene::set(waits, None).await;
    assert_eq!(scene.free().await, (50, 0));
    let sent_at = Instant::now();
    scene.hand_over(1, 0);
    let after = hears.recv().await.unwrap() - sent_at;
    let lease = scene.settings.lease;
    assert!(Lease::safe_for(lease) <= after && after < lease, "{after:?} of {lease:?}");
    // Its slot is free again, and nobody hears of an outcome.
    while scene.free().await != (50, 1) {}
    assert!(sent_at.elapsed() < lease);
    assert!(matches!(scene.settles.try_recv(), Err(TryRecvError::Empty)));
    scene.dispatcher.stop(None);
}

#[tokio::test]
async fn a_slot_that_fails_takes_its_attempt_along_and_no_other() {
    let mut scene = Scene::set(at_once, None).await;
    assert_eq!(scene.free().await, (50, 0));
    scene.clock.fails.store(true, Ordering::SeqCst);
    let lost = scene.hand_over(1, 1);
    // It had lost an attempt before: others like it wait for its end.
    let ended = scene.claims.recv().await.unwrap();
    assert!(matches!(ended, ClaimerMessage::SuspectEnded(id) if id == lost[0]));
    assert_eq!(scene.free().await, (50, 1));

    scene.clock.fails.store(false, Ordering::SeqCst);
    let others = scene.hand_over(3, 0);
    let mut settled = scene.settled().await;
    while settled.len() < 3 {
        settled.extend(scene.settled().await);
    }
    settled.sort_unstable();
    assert_eq!(settled, {
        let mut others = others;
        others.sort_unstable();
        others
    });
    scene.dispatcher.stop(None);
}
