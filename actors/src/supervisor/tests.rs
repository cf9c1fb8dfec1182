use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use metrics::{Counter as Count, Gauge, Histogram, Key, KeyName, Metadata, Recorder, SharedString, Unit};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::coordination::Alone;
use punctual_domain::delivery::Transports;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::schedule::{Definition, Rhythm, Schedule};
use punctual_domain::store::{FireFilter, Page, Store, TaskWithAttempts};
use punctual_domain::task::{AttemptOutcome, NewTask, TaskStatus};
use punctual_domain::time::ZoneDatabase;
use punctual_sdk::{Attempt, Outcome};
use punctual_store::Options;
use tokio::sync::{Semaphore, mpsc};

use super::*;
use crate::{Handlers, Running, Settings, TreeError, start};

/// Has an actor fail.
pub(super) fn fail(state: &State, actor: &str) {
    match actor {
        "settler" => state.settler.fail(SettlerMessage::Probe),
        "claimer" => state.claimer.fail(ClaimerMessage::Probe),
        "reconciler" => state.reconciler.fail(ReconcilerMessage::Probe),
        "ticker" => state.ticker.fail(TickerMessage::Probe),
        "elector" => state.elector.fail(ElectorMessage::Probe),
        "notifier" => state.notifier.fail(NotifierMessage::Probe),
        _ => {
            let mut all = state.dispatchers.iter();
            let (_, dispatcher) = all.find(|(topic, _)| dispatcher_name(topic) == actor).expect("an actor");
            dispatcher.fail(DispatcherMessage::Probe);
        }
    }
}

/// A store in memory, and a clock that stands still.
struct World {
    store: Arc<dyn Store>,
    clock: FakeClock,
}

impl World {
    async fn new() -> Self {
        let clock = FakeClock::at_text("2026-11-16T12:00:00Z");
        let options = Options { clock: Some(Arc::new(clock.clone())), ..Options::default() };
        let store = punctual_store::connect("sqlite::memory:", options).await.unwrap();
        Self { store, clock }
    }

    async fn start(&self, handlers: Handlers) -> Running {
        let deps = Deps {
            store: self.store.clone(),
            clock: Arc::new(self.clock.clone()),
            zones: ZoneDatabase::bundled(),
            coordination: Arc::new(Alone),
            node: NodeId::generate(),
            handlers,
            transports: Transports::default(),
            alerts: Vec::new(),
            settings: Settings::default(),
            happened: Arc::default(),
        };
        start(deps).await.unwrap()
    }

    async fn add(&self, tree: &Running, topic: &str) -> TaskId {
        let task = NewTask::new(topic.parse().unwrap());
        let id = task.id;
        self.store.create_tasks(vec![task], None).await.unwrap();
        tree.hints().tasks_written();
        id
    }

    async fn until_completed(&self, id: TaskId) -> TaskWithAttempts {
        eventually(|| async {
            let found = self.store.task(id).await.unwrap().unwrap();
            (found.task.status == TaskStatus::Completed).then_some(found)
        })
        .await
    }
}

impl Running {
    fn fail(&self, actor: &str) {
        self.hints.send(SupervisorMessage::Fail(actor.to_owned()));
    }

    /// Waits until an actor was started again that often, and answers.
    async fn restarted(&self, actor: &str, restarts: u64) -> ActorStatus {
        eventually(|| async {
            let found = self.status().await.into_iter().find(|status| status.name == actor)?;
            (found.restarts == restarts && found.mailbox.is_some()).then_some(found)
        })
        .await
    }
}

/// Asks again and again until there is an answer; a test that never gets one is ended by the test runner.
async fn eventually<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

/// What this process counts.
#[derive(Clone, Default)]
struct Counts(Arc<Mutex<HashMap<Key, Arc<AtomicU64>>>>);

impl Counts {
    /// How often an actor was started again.
    fn restarts(&self, actor: &'static str) -> u64 {
        let key = Key::from_parts("punctual_actor_restarts_total", vec![metrics::Label::new("actor", actor)]);
        self.0.lock().unwrap().get(&key).map_or(0, |count| count.load(Ordering::SeqCst))
    }
}

impl Recorder for Counts {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Count {
        Count::from_arc(self.0.lock().unwrap().entry(key.clone()).or_default().clone())
    }

    fn register_gauge(&self, _: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::noop()
    }

    fn register_histogram(&self, _: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::noop()
    }
}

#[tokio::test]
async fn whichever_actor_fails_is_started_again_and_all_work_goes_on() {
    // The only test of this binary that counts.
    let counts = Counts::default();
    metrics::set_global_recorder(counts.clone()).map_err(|_| "another counts").unwrap();
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let definition = Definition::new("minutely", Rhythm::Every(60_000), "UTC", &"report".parse().unwrap());
    let schedule = Schedule::new(definition, world.clock.now(), &ZoneDatabase::bundled()).unwrap();
    world.store.create_schedule(&schedule, None).await.unwrap();
    tree.hints().schedules_changed();
    for (failed, child) in Child::ALL.into_iter().enumerate() {
        assert_eq!(counts.restarts(child.name()), 0);
        tree.fail(child.name());
        let status = tree.restarted(child.name(), 1).await;
        assert!(status.failure.is_some_and(|failure| failure.error.contains("poisoned")), "{child:?}");
        assert_eq!(counts.restarts(child.name()), 1);

        let id = world.add(&tree, "mail").await;
        world.until_completed(id).await;
        world.clock.advance(TimeDelta::minutes(1));
        eventually(|| async {
            let fires = world.store.fires(schedule.id, &FireFilter::default(), Page::first(100)).await.unwrap();
            let completed = fires
                .iter()
                .filter(|fire| fire.task.as_ref().is_some_and(|task| task.status == Some(TaskStatus::Completed)));
            (completed.count() == failed + 1).then_some(())
        })
        .await;
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_dispatcher_that_fails_takes_its_attempts_along_and_their_leases_tell() {
    let world = World::new().await;
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let (dropped, mut drops) = mpsc::unbounded_channel();
    let waits = move |attempt: Attempt| {
        let (begun, dropped) = (begun.clone(), dropped.clone());
        async move {
            if attempt.number == 1 {
                let _on_drop = OnDrop(dropped);
                begun.send(()).unwrap();
                std::future::pending::<()>().await;
            }
            Outcome::completed_with("again")
        }
    };
    let tree = world.start(Handlers::default().with("waits", waits)).await;
    let id = world.add(&tree, "waits").await;
    beginnings.recv().await.unwrap();
    tree.fail("dispatcher waits");
    drops.recv().await.unwrap();
    assert_eq!(world.store.task(id).await.unwrap().unwrap().task.status, TaskStatus::Running);

    world.clock.advance(TimeDelta::seconds(30));
    let done = world.until_completed(id).await;
    assert_eq!(done.task.result.unwrap().as_str(), r#""again""#);
    let outcomes: Vec<_> = done.attempts.iter().map(|attempt| attempt.outcome.unwrap()).collect();
    assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Completed]);
    tree.restarted("dispatcher waits", 1).await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

/// Tells when it is dropped.
struct OnDrop(mpsc::UnboundedSender<()>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        // Nobody may want to know.
        let _ = self.0.send(());
    }
}

#[tokio::test]
async fn an_outcome_that_finds_no_settler_waits_for_the_next() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let waits = {
        let gate = gate.clone();
        move |_: Attempt| {
            let (gate, begun) = (gate.clone(), begun.clone());
            async move {
                begun.send(()).unwrap();
                gate.acquire().await.unwrap().forget();
                Outcome::completed()
            }
        }
    };
    let tree = world.start(Handlers::default().with("waits", waits)).await;
    let id = world.add(&tree, "waits").await;
    beginnings.recv().await.unwrap();
    tree.fail("settler");
    eventually(|| async {
        let status = tree.status().await;
        let settler = status.iter().find(|status| status.name == "settler")?;
        (settler.restarts == 1).then_some(())
    })
    .await;
    // It is away for a little longer, or just back.
    gate.add_permits(1);
    assert_eq!(world.until_completed(id).await.attempts.len(), 1);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn one_failure_more_than_the_budget_allows_ends_the_tree() {
    let world = World::new().await;
    let mut tree = world.start(Handlers::default()).await;
    // Dispatchers are not waited for: what fails is forgotten until its topic has work again.
    for n in 0..=BUDGET {
        let id = world.add(&tree, &format!("t{n}")).await;
        world.until_completed(id).await;
    }
    for n in 0..BUDGET {
        tree.fail(&format!("dispatcher t{n}"));
    }
    eventually(|| async {
        let dispatchers = tree.status().await.iter().filter(|actor| actor.name.starts_with("dispatcher")).count();
        (dispatchers == 1).then_some(())
    })
    .await;
    let id = world.add(&tree, "t0").await;
    world.until_completed(id).await;

    tree.fail(&format!("dispatcher t{BUDGET}"));
    tree.gave_up().await;
    assert!(matches!(tree.drain(Duration::ZERO).await, Err(TreeError::GaveUp)));
}

#[test]
fn each_failure_within_a_minute_waits_twice_as_long_and_the_eleventh_is_too_many() {
    let began_at = Instant::now();
    let mut budget = Budget::default();
    let mut spend = |seconds| budget.spend(began_at + Duration::from_secs(seconds));
    for n in 0..10 {
        assert_eq!(spend(n), Some(Duration::from_millis(50 << n)), "{n}");
    }
    assert_eq!(spend(59), None);
    // All but the last of them are forgotten.
    assert_eq!(spend(118), Some(Duration::from_millis(100)));
}
