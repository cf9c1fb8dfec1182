//! Schedules: what they make, whoever leads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::BoxFuture;
use punctual_actors::{Deps, Handlers, Running, Settings};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::fire::{Fire, FireKind, SkipReason};
use punctual_domain::id::ScheduleId;
use punctual_domain::schedule::{Definition, MisfirePolicy, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::store::{Backfill, Bulk, FireFilter, MissedCursor, Page, TaskFilter};
use punctual_domain::task::{Task, TaskStatus};
use punctual_domain::time::ZoneDatabase;
use punctual_sdk::{Attempt, Handler, Outcome};
use tokio::sync::Semaphore;

use crate::support::{World, does, eventually, task};

const MINUTE: TimeDelta = TimeDelta::minutes(1);

impl World {
    /// A schedule that fires every minute, written; the tree is told.
    async fn every_minute(&self, tree: &Running, change: impl FnOnce(&mut Definition)) -> Schedule {
        let schedule = self.unwritten(change);
        self.store.create_schedule(&schedule, None).await.unwrap();
        tree.hints().schedules_changed();
        schedule
    }

    pub(crate) fn unwritten(&self, change: impl FnOnce(&mut Definition)) -> Schedule {
        let mut definition = Definition::new("minutely", Rhythm::Every(60_000), "UTC", &"report".parse().unwrap());
        change(&mut definition);
        Schedule::new(definition, self.clock.now(), &ZoneDatabase::bundled()).unwrap()
    }

    pub(crate) async fn schedule(&self, id: ScheduleId) -> Schedule {
        self.store.schedule(id).await.unwrap().unwrap()
    }

    /// All fires of a schedule, the oldest first.
    pub(crate) async fn fires(&self, id: ScheduleId) -> Vec<Fire> {
        let mut page = Page::first(1_000);
        let mut all: Vec<Fire> = Vec::new();
        loop {
            let found = self.store.fires(id, &FireFilter::default(), page).await.unwrap();
            let Some(last) = found.last() else { break };
            page.after = Some(last.id);
            all.extend(found);
        }
        all.sort_by_key(|fire| fire.scheduled_at);
        all
    }

    /// Waits until everything is decided that is due.
    async fn ticked(&self) {
        eventually(|| async {
            let next = self.store.next_tick_at().await.unwrap();
            let is_due = |at: Option<DateTime<Utc>>| at.is_some_and(|at| at <= self.clock.now());
            (!is_due(next.fire_at) && !is_due(next.resume_at)).then_some(())
        })
        .await;
    }

    /// Moves the clock on by a minute, and waits until everything is decided that is due then.
    async fn minute_passes(&self) {
        self.clock.advance(MINUTE);
        self.ticked().await;
    }

    async fn tasks_of(&self, id: ScheduleId) -> Vec<Task> {
        let filter = TaskFilter { schedule_id: Some(id), ..TaskFilter::default() };
        self.store.tasks(&filter, Page::first(1_000)).await.unwrap()
    }
}

/// Leases that outlast every move of the clock.
fn long_leases() -> Settings {
    Settings { lease: Duration::from_secs(86_400), ..Settings::default() }
}

/// A handler that tells of each attempt, then waits to be let go or stopped.
struct Gate {
    begun: Mutex<Vec<DateTime<Utc>>>,
    stopped: Mutex<Vec<DateTime<Utc>>>,
    open: Semaphore,
}

impl Gate {
    fn new() -> Arc<Self> {
        Arc::new(Self { begun: Mutex::default(), stopped: Mutex::default(), open: Semaphore::new(0) })
    }

    fn handler(self: &Arc<Self>) -> impl Handler + use<> {
        let gate = self.clone();
        does(move |attempt: Attempt| {
            let gate = gate.clone();
            async move {
                let at = attempt.scheduled_at.expect("a task of a fire");
                gate.begun.lock().unwrap().push(at);
                tokio::select! {
                    permit = gate.open.acquire() => permit.unwrap().forget(),
                    () = attempt.cancelled.cancelled() => gate.stopped.lock().unwrap().push(at),
                }
                Outcome::completed()
            }
        })
    }

    async fn until_begun(&self, expected: &[DateTime<Utc>]) {
        eventually(|| async { (*self.begun.lock().unwrap() == expected).then_some(()) }).await;
    }
}

#[tokio::test]
async fn a_schedule_fires_when_its_instant_comes_and_its_attempt_knows_the_fire() {
    let world = World::new().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let notes = does(move |attempt: Attempt| {
        notes.lock().unwrap().push((attempt.schedule_id, attempt.scheduled_at, attempt.run_at));
        async { Outcome::completed() }
    });
    let tree = world.start(Handlers::default().with("report", notes)).await;
    let schedule = world.every_minute(&tree, |_| {}).await;
    world.clock.advance(MINUTE - TimeDelta::milliseconds(1));
    let other = world.add(task("other")).await;
    tree.hints().tasks_written();
    world.until(other, TaskStatus::Completed).await;
    assert_eq!(world.fires(schedule.id).await, []);

    world.clock.advance(TimeDelta::milliseconds(1));
    let at = schedule.next_fire_at.unwrap();
    eventually(|| async { (!seen.lock().unwrap().is_empty()).then_some(()) }).await;
    assert_eq!(*seen.lock().unwrap(), [(Some(schedule.id.0), Some(at), at)]);
    let fires = world.fires(schedule.id).await;
    assert_eq!((fires.len(), fires[0].scheduled_at, fires[0].fired_at), (1, at, at));
    assert_eq!(fires[0].tz_version, ZoneDatabase::bundled().version());
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn an_attempt_finds_its_execution_whatever_made_it_on_sqlite() {
    attempts_find_their_executions(World::new().await).await;
}

#[tokio::test]
async fn an_attempt_finds_its_execution_whatever_made_it_on_postgres() {
    if let Some(world) = World::on_postgres().await {
        attempts_find_their_executions(world).await;
    }
}

async fn attempts_find_their_executions(world: World) {
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let notes = does(move |attempt: Attempt| {
        let notes = notes.clone();
        async move {
            let execution = attempt.execution_id().await.unwrap();
            notes.lock().unwrap().push((attempt.task_id, execution));
            Outcome::failed("so that it can be retried")
        }
    });
    let tree = world.start(Handlers::default().with("report", notes)).await;
    let schedule = world.every_minute(&tree, |definition| definition.max_retries = Some(1)).await;
    world.minute_passes().await;
    world.store.trigger(schedule.id, "2026a", None).await.unwrap();
    let instants = vec![schedule.created_at - MINUTE];
    let backfill = Backfill { instants, most: 1, bulk: Bulk::Apply, tz_version: "2026a".into() };
    world.store.backfill(schedule.id, backfill, None).await.unwrap();
    let one_off = world.add(task("report")).await;
    tree.hints().tasks_written();
    eventually(|| async { (seen.lock().unwrap().len() == 4).then_some(()) }).await;

    let fires = world.fires(schedule.id).await;
    let kinds: Vec<_> = fires.iter().map(|fire| fire.kind).collect();
    assert_eq!(kinds, [FireKind::Backfill, FireKind::Schedule, FireKind::Manual]);
    let mut expected: Vec<_> = fires
        .iter()
        .map(|fire| (fire.task.as_ref().unwrap().id.0, Some(fire.id.0)))
        .chain([(one_off.0, None)])
        .collect();
    expected.sort();
    let mut found = seen.lock().unwrap().clone();
    found.sort();
    assert_eq!(found, expected);

    // A task in another's place belongs to the same execution.
    let failed = fires[1].task.as_ref().unwrap().id;
    world.until(failed, TaskStatus::Failed).await;
    let again = world.store.retry(failed, None).await.unwrap().into_made().unwrap().into_task();
    tree.hints().tasks_written();
    world.until(again.id, TaskStatus::Failed).await;
    assert_eq!(*seen.lock().unwrap().last().unwrap(), (again.id.0, Some(fires[1].id.0)));
    tree.drain(Duration::from_secs(5)).await.unwrap();
    world.remove().await;
}

#[tokio::test]
async fn nothing_ticks_after_a_drain() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let schedule = world.every_minute(&tree, |_| {}).await;
    world.minute_passes().await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
    world.clock.advance(MINUTE);
    let tree = world.start(Handlers::default()).await;
    world.ticked().await;
    assert_eq!(world.fires(schedule.id).await.len(), 2);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn overlapping_fires_follow_the_schedules_policy() {
    for (policy, expected) in [
        (OverlapPolicy::Skip, vec![1]),
        (OverlapPolicy::Queue, vec![1]),
        (OverlapPolicy::Allow, vec![1, 2, 3]),
        (OverlapPolicy::CancelPrevious, vec![1, 2, 3]),
    ] {
        let world = World::new().await;
        let gate = Gate::new();
        let tree = world.start_with(Handlers::default().with("report", gate.handler()), long_leases()).await;
        let schedule = world.every_minute(&tree, |definition| definition.overlap_policy = policy).await;
        let at = |n: i32| schedule.created_at + MINUTE * n;
        for n in 1..=3 {
            world.minute_passes().await;
            let begun: Vec<_> = expected.iter().filter(|begun| **begun <= n).map(|begun| at(*begun)).collect();
            gate.until_begun(&begun).await;
        }
        let reasons: Vec<_> = world.fires(schedule.id).await.iter().map(|fire| fire.reason).collect();
        let tasks = world.tasks_of(schedule.id).await;
        let count = |status| tasks.iter().filter(|task| task.status == status).count();
        match policy {
            OverlapPolicy::Skip => {
                assert_eq!(reasons, [None, Some(SkipReason::Overlap), Some(SkipReason::Overlap)]);
            }
            OverlapPolicy::Queue => {
                assert_eq!((reasons, count(TaskStatus::Pending)), (vec![None; 3], 2));
                gate.open.add_permits(2);
                gate.until_begun(&[at(1), at(2), at(3)]).await;
            }
            OverlapPolicy::Allow => assert_eq!((reasons, count(TaskStatus::Running)), (vec![None; 3], 3)),
            OverlapPolicy::CancelPrevious => {
                assert_eq!((reasons, count(TaskStatus::Cancelled)), (vec![None; 3], 2));
                eventually(|| async { (gate.stopped.lock().unwrap().len() == 2).then_some(()) }).await;
                assert_eq!(*gate.stopped.lock().unwrap(), [at(1), at(2)]);
            }
        }
        gate.open.add_permits(10);
        tree.drain(Duration::from_secs(5)).await.unwrap();
    }
}

#[tokio::test]
async fn a_day_of_downtime_is_made_up_for_as_the_schedule_says() {
    let world = World::new().await;
    let mut schedules = Vec::new();
    for (name, policy) in
        [("once", MisfirePolicy::FireOnce), ("skip", MisfirePolicy::Skip), ("all", MisfirePolicy::FireAll)]
    {
        let schedule = world.unwritten(|definition| {
            definition.name = name.into();
            definition.misfire_policy = policy;
            definition.overlap_policy = OverlapPolicy::Allow;
            definition.misfire_window_seconds = 2 * 86_400;
        });
        world.store.create_schedule(&schedule, None).await.unwrap();
        schedules.push(schedule);
    }
    // Nobody is there for a day; the last instant is a little too old to be fresh.
    world.clock.advance(TimeDelta::days(1) + TimeDelta::seconds(45));
    let tree = world.start(Handlers::default()).await;
    world.ticked().await;
    let [once, skip, all] = [0, 1, 2].map(|i: usize| schedules[i].id);
    let last = schedules[0].created_at + TimeDelta::days(1);

    let shown = |fires: Vec<Fire>| -> Vec<_> {
        fires.iter().map(|fire| (fire.scheduled_at, fire.reason, fire.count)).collect()
    };
    let first = schedules[0].next_fire_at.unwrap();
    let coalesced = Some(SkipReason::Coalesced);
    assert_eq!(shown(world.fires(once).await), [(first, coalesced, 1_439), (last, None, 1)]);
    assert_eq!(shown(world.fires(skip).await), [(first, Some(SkipReason::Misfire), 1_440)]);
    let made = world.fires(all).await;
    let expected: Vec<_> = (0..1_440).map(|minute| (first + MINUTE * minute, None, 1)).collect();
    assert_eq!(shown(made), expected);
    // All were noted as missed, once.
    let missed = world.store.missed_fires(&MissedCursor::since(first), 100).await.unwrap();
    assert_eq!(missed.iter().map(|missed| missed.scheduled_at).collect::<Vec<_>>(), [first; 3]);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn fresh_work_overtakes_what_is_being_caught_up() {
    let world = World::new().await;
    for i in 0..10 {
        let schedule = world.unwritten(|definition| {
            definition.name = format!("old {i}");
            definition.topic = "old".into();
            definition.misfire_policy = MisfirePolicy::FireAll;
        });
        world.store.create_schedule(&schedule, None).await.unwrap();
    }
    let total = 10 * 240;
    world.clock.advance(TimeDelta::hours(4) + TimeDelta::seconds(45));
    // Its tasks wait until the end, so that catching up cannot be finished before.
    let gate = Gate::new();
    let tree = world.start_with(Handlers::default().with("old", gate.handler()), long_leases()).await;
    let fresh = world.every_minute(&tree, |definition| definition.name = "fresh".into()).await;
    eventually(|| async { (gate.begun.lock().unwrap().len() >= 10).then_some(()) }).await;

    let one_off = world.add(task("other")).await;
    tree.hints().tasks_written();
    world.until(one_off, TaskStatus::Completed).await;
    world.clock.advance(MINUTE);
    eventually(|| async { (!world.fires(fresh.id).await.is_empty()).then_some(()) }).await;
    let made = world.fires(fresh.id).await[0].task.clone().unwrap();
    world.until(made.id, TaskStatus::Completed).await;
    let fires_of_old = || async {
        let mut fires = 0;
        for schedule in world.store.schedules(&Default::default(), Page::first(100)).await.unwrap() {
            if schedule.definition.topic == "old" {
                fires += schedule.fires_made;
            }
        }
        fires
    };
    assert!(fires_of_old().await < total, "the catching up was over before");

    gate.open.add_permits(100_000);
    eventually(|| async { (fires_of_old().await >= total).then_some(()) }).await;
    tree.drain(Duration::from_secs(30)).await.unwrap();
}

#[tokio::test]
async fn two_that_believe_they_lead_make_each_fire_once() {
    let world = World::new().await;
    let trees = [world.start(Handlers::default()).await, world.start(Handlers::default()).await];
    let mut schedules = Vec::new();
    for i in 0..20 {
        schedules.push(world.every_minute(&trees[0], |definition| definition.name = format!("{i}")).await);
    }
    trees[1].hints().schedules_changed();
    for _ in 0..10 {
        world.minute_passes().await;
    }
    for schedule in schedules {
        let instants: Vec<_> = world.fires(schedule.id).await.iter().map(|fire| fire.scheduled_at).collect();
        assert_eq!(instants, (1..=10).map(|n| schedule.created_at + MINUTE * n).collect::<Vec<_>>());
        assert_eq!(world.schedule(schedule.id).await.fires_made, world.tasks_of(schedule.id).await.len() as u64);
    }
    for tree in trees {
        tree.drain(Duration::from_secs(5)).await.unwrap();
    }
}

/// A clock that fails whoever asks it next, once it is told to.
struct Failing {
    clock: FakeClock,
    fails: AtomicBool,
}

impl Clock for Failing {
    fn now(&self) -> DateTime<Utc> {
        assert!(!self.fails.swap(false, Ordering::SeqCst), "no time to tell");
        self.clock.now()
    }

    fn sleep_until(&self, at: DateTime<Utc>) -> BoxFuture<'static, ()> {
        self.clock.sleep_until(at)
    }
}

#[tokio::test]
async fn a_ticker_that_fails_is_started_again_by_itself_and_goes_on() {
    let world = World::new().await;
    let clock = Arc::new(Failing { clock: world.clock.clone(), fails: AtomicBool::new(false) });
    let deps = Deps { clock: clock.clone(), ..world.deps(Handlers::default()) };
    let tree = punctual_actors::start(deps).await.unwrap();
    let schedule = world.every_minute(&tree, |_| {}).await;
    world.minute_passes().await;
    let made = world.tasks_of(schedule.id).await.remove(0);
    world.until(made.id, TaskStatus::Completed).await;

    // With a clock that stands still, only who is asked to look asks for the time.
    clock.fails.store(true, Ordering::SeqCst);
    tree.hints().schedules_changed();
    let restarts = || async {
        let status = tree.status().await;
        let failed = status.iter().filter(|actor| actor.restarts > 0);
        failed.map(|actor| (actor.name.clone(), actor.restarts, actor.failure.clone())).collect::<Vec<_>>()
    };
    let restarted = eventually(|| async { Some(restarts().await).filter(|restarted| !restarted.is_empty()) }).await;
    let (name, count, error) = &restarted[0];
    assert_eq!((restarted.len(), name.as_str(), *count), (1, "ticker", 1));
    assert!(error.as_ref().is_some_and(|failure| failure.error.contains("no time to tell")), "{error:?}");

    for _ in 0..3 {
        world.minute_passes().await;
    }
    let instants: Vec<_> = world.fires(schedule.id).await.iter().map(|fire| fire.scheduled_at).collect();
    assert_eq!(instants, [1, 2, 3, 4].map(|n| schedule.created_at + MINUTE * n));
    assert_eq!(restarts().await, restarted);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_pause_ends_by_itself_at_its_instant() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let schedule = world.every_minute(&tree, |_| {}).await;
    let until = schedule.created_at + MINUTE * 3;
    world.store.update_schedule(&schedule.clone().paused(None, Some(until)), None).await.unwrap();
    tree.hints().schedules_changed();
    for _ in 0..5 {
        world.minute_passes().await;
    }
    let instants: Vec<_> = world.fires(schedule.id).await.iter().map(|fire| fire.scheduled_at).collect();
    assert_eq!(instants, [3, 4, 5].map(|n| schedule.created_at + MINUTE * n));
    let resumed = world.schedule(schedule.id).await;
    assert_eq!((resumed.enabled, resumed.paused_until, resumed.version), (true, None, 3));
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_schedule_that_cannot_be_understood_is_paused_and_holds_up_nobody() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let mut lost = world.unwritten(|definition| definition.name = "lost".into());
    // As if new zone data had lost the zone.
    lost.definition.timezone = "Mars/Base".into();
    world.store.create_schedule(&lost, None).await.unwrap();
    let sound = world.every_minute(&tree, |_| {}).await;
    for _ in 0..2 {
        world.minute_passes().await;
    }
    assert_eq!(world.fires(sound.id).await.len(), 2);
    let paused = eventually(|| async { Some(world.schedule(lost.id).await).filter(|lost| !lost.enabled) }).await;
    let note = paused.pause_note.unwrap();
    assert!(note.contains("Mars/Base"), "{note}");
    assert_eq!(world.fires(lost.id).await, []);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn schedules_planned_with_older_zone_data_are_planned_anew() {
    let world = World::new().await;
    let mut schedule = world.unwritten(|definition| {
        definition.rhythm = Rhythm::Cron("30 8 * * *".into());
        definition.timezone = "America/Edmonton".into();
    });
    // By rules under which Edmonton's clocks go back in winter.
    let right = schedule.next_fire_at.unwrap();
    schedule.next_fire_at = Some(right + TimeDelta::hours(1));
    schedule.tz_version = "2025b".into();
    world.store.create_schedule(&schedule, None).await.unwrap();
    let tree = world.start(Handlers::default()).await;
    let planned = eventually(|| async {
        Some(world.schedule(schedule.id).await).filter(|found| found.tz_version != schedule.tz_version)
    })
    .await;
    assert_eq!((planned.next_fire_at, planned.version), (Some(right), schedule.version));
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_node_with_older_zone_data_does_not_lead_and_still_sees_what_is_missed() {
    let world = World::new().await;
    world.store.note_tz_version("2099a").await.unwrap();
    let tree = world.start(Handlers::default()).await;
    let schedule = world.every_minute(&tree, |_| {}).await;
    world.clock.advance(MINUTE);
    let missed = eventually(|| async {
        // Whoever watches looks every few seconds.
        world.clock.advance(TimeDelta::seconds(5));
        let missed = world.store.missed_fires(&MissedCursor::since(schedule.created_at), 10).await.unwrap();
        (!missed.is_empty()).then_some(missed)
    })
    .await;
    assert_eq!((missed.len(), missed[0].scheduled_at), (1, schedule.next_fire_at.unwrap()));
    assert_eq!(world.fires(schedule.id).await, []);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

/// Settings by which a fire may be a day late.
fn late_is_fine() -> Settings {
    Settings { misfire_threshold: Duration::from_secs(86_400), ..long_leases() }
}

#[tokio::test]
async fn an_instant_is_missed_after_half_a_minute_also_where_it_may_fire_a_day_late() {
    let world = World::new().await;
    // Nobody leads.
    world.store.note_tz_version("2099a").await.unwrap();
    let tree = world.start_with(Handlers::default(), late_is_fine()).await;
    let schedule = world.every_minute(&tree, |_| {}).await;
    world.clock.advance(MINUTE);
    let missed = eventually(|| async {
        // Whoever watches looks every few seconds.
        world.clock.advance(TimeDelta::seconds(5));
        let missed = world.store.missed_fires(&MissedCursor::since(schedule.created_at), 10).await.unwrap();
        missed.first().cloned()
    })
    .await;
    let late = missed.noted_at - missed.scheduled_at;
    assert!(late > TimeDelta::seconds(30) && late < TimeDelta::hours(12), "{late}");
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn what_a_node_finds_and_just_fires_was_missed_all_the_same() {
    let world = World::new().await;
    let schedule = world.unwritten(|definition| definition.overlap_policy = OverlapPolicy::Allow);
    world.store.create_schedule(&schedule, None).await.unwrap();
    world.clock.advance(TimeDelta::hours(1) + TimeDelta::seconds(45));
    let tree = world.start_with(Handlers::default(), late_is_fine()).await;
    world.ticked().await;
    let reasons: Vec<_> = world.fires(schedule.id).await.iter().map(|fire| fire.reason).collect();
    assert_eq!(reasons, vec![None; 60]);
    let missed = world.store.missed_fires(&MissedCursor::since(schedule.created_at), 100).await.unwrap();
    assert_eq!(missed.iter().map(|missed| missed.scheduled_at).collect::<Vec<_>>(), [schedule.created_at + MINUTE]);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}
