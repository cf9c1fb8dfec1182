//! Ticks: due instants become fires and tasks, once.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::{Disposition, DueSchedule, Fire, FireKind, NewFire, Room, SkipReason, TaskOfFire, Tick};
use punctual_domain::id::{FireId, ScheduleId};
use punctual_domain::schedule::{MisfirePolicy, OverlapPolicy, Schedule};
use punctual_domain::store::{Depth, FireFilter, Lateness, NextTick, Page, TaskFilter, Ticked};
use punctual_domain::task::TaskStatus;

use crate::support::*;

const MINUTE: TimeDelta = TimeDelta::minutes(1);

/// A fire at `at` that makes a task.
fn fired(schedule: &Schedule, at: DateTime<Utc>) -> NewFire {
    let task = Box::new(schedule.task_of_fire(at, false, None));
    NewFire { id: FireId::generate(), scheduled_at: at, disposition: Disposition::Fired(task) }
}

/// A decision to make these fires and go on a minute after the last.
fn tick(fires: Vec<NewFire>) -> Tick {
    let last = fires.last().unwrap().scheduled_at;
    Tick {
        fires,
        resumes: false,
        stops: None,
        cancel_previous: false,
        next_fire_at: Some(last + MINUTE),
        fired_through: last,
        tz_version: "2026a".into(),
    }
}

async fn fires(node: &NodeStore, id: ScheduleId) -> Vec<Fire> {
    node.fires(id, &FireFilter::default(), Page::first(1000)).await.unwrap()
}

async fn read(node: &NodeStore, id: ScheduleId) -> Schedule {
    node.schedule(id).await.unwrap().unwrap()
}

pub(crate) async fn a_due_schedule_fires_and_goes_on(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = schedule.next_fire_at.unwrap();
    world.advance_secs(61);
    assert_eq!(counts(&world.tick_by_the_rules().await), [1, 1, 0, 0]);

    let tasks = world.list(TaskFilter { schedule_id: Some(schedule.id), ..Default::default() }).await;
    let [made] = tasks.as_slice() else { panic!("{tasks:?}") };
    let as_decided = punctual_domain::task::NewTask { id: made.id, ..schedule.task_of_fire(at, false, None) };
    assert_eq!(*made, written(as_decided, world.now()));

    let fires = fires(&world, schedule.id).await;
    let [fire] = fires.as_slice() else { panic!("{fires:?}") };
    assert_eq!((fire.schedule_id, fire.kind, fire.scheduled_at), (schedule.id, FireKind::Schedule, at));
    assert_eq!((fire.fired_at, fire.reason, fire.until, fire.count), (world.now(), None, None, 1));
    let pending = TaskOfFire {
        is_handed_over: false,
        id: made.id,
        status: Some(TaskStatus::Pending),
        attempt: 0,
        started_at: None,
        completed_at: None,
        error: None,
    };
    assert_eq!(fire.task, Some(pending));

    let expected = Schedule {
        next_fire_at: Some(at + MINUTE),
        fired_through: Some(at),
        last_fired_at: Some(world.now()),
        fires_made: 1,
        ..schedule
    };
    assert_eq!(read(&world, expected.id).await, expected);
    assert_eq!(world.tick_by_the_rules().await, Ticked::default());
}

pub(crate) async fn nothing_fires_before_its_instant(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance(MINUTE - TimeDelta::microseconds(1));
    let nobody_asks = |_: &DueSchedule, _| panic!("not due");
    assert_eq!(world.tick(Lateness::Any, 10, &nobody_asks).await, Ok(Ticked::default()));
    assert_eq!(fires(&world, schedule.id).await, []);
    world.advance(TimeDelta::microseconds(1));
    assert_eq!(world.tick_by_the_rules().await.fired, 1);
}

pub(crate) async fn a_decision_sees_the_schedule_its_live_tasks_and_its_calendars(world: World) {
    let holidays = Calendar {
        name: "holidays".into(),
        dates: ["2026-12-25".parse().unwrap()].into(),
        weekdays: vec![chrono::Weekday::Sun],
    };
    world.put_calendar(&holidays).await.unwrap();
    world.put_calendar(&Calendar { name: "other".into(), ..holidays.clone() }).await.unwrap();
    let mut schedule = world.unwritten("nightly");
    schedule.definition.exclude_calendars = vec!["holidays".into()];
    world.create_schedule(&schedule).await.unwrap();
    // Five tasks of its fires, two of them ended, and one of another schedule.
    let of = |topic: &str| task(topic).of_schedule(schedule.id, world.now());
    world.ended(of("a"), TaskStatus::Completed).await;
    world.ended(of("a"), TaskStatus::Failed).await;
    world.running(of("b")).await;
    let running = world.running(of("c")).await;
    world.settle_now(&running, retried(9999)).await;
    world.add(of("d")).await;
    world.add(task("d").of_schedule(ScheduleId::generate(), world.now())).await;
    world.advance_secs(61);

    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let look = move |due: &DueSchedule, now: DateTime<Utc>| {
        notes.lock().unwrap().push((due.schedule.clone(), due.live_tasks, due.calendars.clone(), now));
        None
    };
    world.tick(Lateness::Any, 10, &look).await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [(schedule, 3, vec![holidays], world.now())]);
}

pub(crate) async fn a_schedule_without_a_decision_stays_as_it_is(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    let ticked = world.tick(Lateness::Any, 10, &|_, _| None).await.unwrap();
    assert_eq!((ticked.fired, ticked.skipped, ticked.lost_races), (0, 0, 0));
    assert_eq!(read(&world, schedule.id).await, schedule);
    assert_eq!(fires(&world, schedule.id).await, []);
    assert_eq!(world.tick_by_the_rules().await.fired, 1);
}

pub(crate) async fn the_longest_due_schedules_go_first(world: World) {
    let mut schedules = Vec::new();
    for (name, seconds) in [("b", 20), ("c", 30), ("a", 10)] {
        let mut schedule = world.unwritten(name);
        schedule.next_fire_at = Some(world.in_secs(seconds));
        world.create_schedule(&schedule).await.unwrap();
        schedules.push(schedule);
    }
    world.advance_secs(40);
    let decide = |due: &DueSchedule, _| Some(tick(vec![fired(&due.schedule, due.schedule.next_fire_at?)]));
    assert_eq!(counts(&world.tick(Lateness::Any, 2, &decide).await.unwrap()), [2, 2, 0, 0]);
    let made: Vec<_> = read_all(&world, &schedules).await.iter().map(|schedule| schedule.fires_made).collect();
    assert_eq!(made, [1, 0, 1]);
    assert_eq!(world.tick(Lateness::Any, 2, &decide).await.unwrap().fired, 1);
}

async fn read_all(node: &NodeStore, schedules: &[Schedule]) -> Vec<Schedule> {
    let mut found = Vec::new();
    for schedule in schedules {
        found.push(read(node, schedule.id).await);
    }
    found
}

pub(crate) async fn a_paused_or_finished_schedule_does_not_fire(world: World) {
    for name in ["paused", "done"] {
        let mut schedule = world.unwritten(name);
        schedule.next_fire_at = None;
        schedule.enabled = name != "paused";
        world.create_schedule(&schedule).await.unwrap();
    }
    world.advance_secs(3600);
    assert_eq!(world.tick_by_the_rules().await, Ticked::default());
}

pub(crate) async fn a_disabled_schedule_is_never_due_whatever_its_next_instant(world: World) {
    let mut disabled = world.unwritten("nightly");
    disabled.enabled = false;
    assert!(disabled.next_fire_at.is_some());
    world.create_schedule(&disabled).await.unwrap();
    world.advance_secs(3600);
    assert_eq!(world.next_tick_at().await, Ok(NextTick::default()));
    assert_eq!(world.counts().await.unwrap().schedule_lag, std::time::Duration::ZERO);
    assert_eq!(world.tick_by_the_rules().await, Ticked::default());
}

pub(crate) async fn the_last_fire_leaves_no_next_instant(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.max_fires = Some(2);
    world.create_schedule(&schedule).await.unwrap();
    for expected in [1, 1, 0] {
        world.advance_secs(60);
        let ticked = world.tick_by_the_rules().await;
        assert_eq!(ticked.fired, expected);
        for task in world.claim_up_to(9, "report").await {
            world.settle_now(&task, completed()).await;
        }
    }
    let done = read(&world, schedule.id).await;
    assert_eq!((done.next_fire_at, done.fires_made), (None, 2));
}

pub(crate) async fn skipped_instants_are_one_fire_with_its_reason(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.misfire_policy = MisfirePolicy::Skip;
    world.create_schedule(&schedule).await.unwrap();
    let first = schedule.next_fire_at.unwrap();
    world.advance(MINUTE * 5 + TimeDelta::seconds(45));
    assert_eq!(counts(&world.tick_by_the_rules().await), [1, 0, 5, 0]);

    let fires = fires(&world, schedule.id).await;
    let [fire] = fires.as_slice() else { panic!("{fires:?}") };
    assert_eq!((fire.scheduled_at, fire.until, fire.count), (first, Some(first + MINUTE * 4), 5));
    assert_eq!((fire.reason, &fire.task), (Some(SkipReason::Misfire), &None));
    let after = read(&world, schedule.id).await;
    assert_eq!((after.fires_made, after.last_fired_at), (0, None));
    assert_eq!(after.fired_through, Some(first + MINUTE * 4));
    assert_eq!(world.list(TaskFilter::default()).await, []);
}

pub(crate) async fn every_reason_comes_back(world: World) {
    let schedule = world.every_minute("nightly").await;
    let first = schedule.next_fire_at.unwrap();
    let skips: Vec<_> = SkipReason::ALL
        .into_iter()
        .enumerate()
        .map(|(i, reason)| {
            let at = first + MINUTE * i as i32;
            let disposition = Disposition::Skipped { reason, until: at, count: 1 };
            NewFire { id: FireId::generate(), scheduled_at: at, disposition }
        })
        .collect();
    let expected: Vec<_> = skips.iter().rev().map(|fire| fire.id).collect();
    world.advance(MINUTE * 9);
    assert_eq!(world.tick(Lateness::Any, 10, &move |_, _| Some(tick(skips.clone()))).await.unwrap().skipped, 5);
    let fires = fires(&world, schedule.id).await;
    assert_eq!(fires.iter().map(|fire| fire.id).collect::<Vec<_>>(), expected);
    let reasons: Vec<_> = fires.iter().rev().filter_map(|fire| fire.reason).collect();
    assert_eq!(reasons, SkipReason::ALL);
    assert!(fires.iter().all(|fire| fire.tz_version == "2026a"));
}

pub(crate) async fn an_overlapping_fire_is_skipped_while_a_task_lives(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    world.advance_secs(60);
    assert_eq!(counts(&world.tick_by_the_rules().await), [1, 0, 1, 0]);
    assert_eq!(fires(&world, schedule.id).await[0].reason, Some(SkipReason::Overlap));
    world.settle_now(&world.claim_one("report").await, completed()).await;
    world.advance_secs(60);
    assert_eq!(world.tick_by_the_rules().await.fired, 1);
}

pub(crate) async fn cancel_previous_cancels_the_live_tasks_of_the_schedule(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.overlap_policy = OverlapPolicy::CancelPrevious;
    world.create_schedule(&schedule).await.unwrap();
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    let running = world.claim_one("report").await;
    let waiting = world.add(task("report").of_schedule(schedule.id, world.now()).in_secs(9999)).await;
    let other = world.add(task("report").of_schedule(ScheduleId::generate(), world.now()).in_secs(9999)).await;
    world.advance_secs(60);
    let ticked = world.tick_by_the_rules().await;
    assert_eq!((ticked.fired, ticked.stopped), (1, vec![running.id]));
    assert_eq!(ticked.cancelled, [Depth { topic: "report".into(), of_schedules: true, tasks: 2 }]);

    assert_eq!(world.read(running.id).await, running.cancel(world.now()).unwrap());
    assert_eq!(world.read(waiting.id).await, waiting.cancel(world.now()).unwrap());
    assert_eq!(world.read(other.id).await, other);
    let fresh = world.claim_one("report").await;
    assert_eq!(fresh.fire.unwrap().scheduled_at, schedule.next_fire_at.unwrap() + MINUTE);
}

pub(crate) async fn an_instant_at_or_before_the_watermark_does_not_fire_again(world: World) {
    let schedule = world.every_minute("nightly").await;
    let [first, second] = [1, 2].map(|i| schedule.created_at + MINUTE * i);
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    world.advance_secs(60);
    let all_again = move |due: &DueSchedule, _: DateTime<Utc>| {
        Some(tick([first - MINUTE, first, second].map(|at| fired(&due.schedule, at)).into()))
    };
    let ticked = world.tick(Lateness::Any, 10, &all_again).await.unwrap();
    assert_eq!((ticked.schedules, ticked.fired), (1, 1));
    let instants: Vec<_> = fires(&world, schedule.id).await.iter().map(|fire| fire.scheduled_at).collect();
    assert_eq!(instants, [second, first]);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 2);
    assert_eq!(read(&world, schedule.id).await.fires_made, 2);
}

pub(crate) async fn a_fire_that_is_there_is_a_lost_race_and_makes_no_task(world: World) {
    let schedule = world.every_minute("nightly").await;
    let first = schedule.next_fire_at.unwrap();
    world.advance_secs(600);
    // A decision that leaves the watermark behind its fire, so that the row itself must be in the way.
    let behind = move |due: &DueSchedule, _: DateTime<Utc>| {
        let made = tick(vec![fired(&due.schedule, first)]);
        Some(Tick { fired_through: first - MINUTE, next_fire_at: Some(first), ..made })
    };
    assert_eq!(world.tick(Lateness::Any, 10, &behind).await.unwrap().fired, 1);
    let both = move |due: &DueSchedule, _: DateTime<Utc>| {
        Some(tick([first, first + MINUTE].map(|at| fired(&due.schedule, at)).into()))
    };
    assert_eq!(counts(&world.tick(Lateness::Any, 10, &both).await.unwrap()), [1, 1, 0, 1]);
    assert_eq!(fires(&world, schedule.id).await.len(), 2);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 2);
    assert_eq!(read(&world, schedule.id).await.fires_made, 2);
}

pub(crate) async fn a_pruned_fire_does_not_fire_again(world: World) {
    let schedule = world.every_minute("nightly").await;
    let first = schedule.next_fire_at.unwrap();
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    world.settle_now(&world.claim_one("report").await, completed()).await;
    world.advance(TimeDelta::days(2));
    while world.prune(Duration::from_secs(86_400), 100).await.unwrap() != Default::default() {}
    assert_eq!(fires(&world, schedule.id).await, []);

    let again = move |due: &DueSchedule, _: DateTime<Utc>| Some(tick(vec![fired(&due.schedule, first)]));
    assert_eq!(world.tick(Lateness::Any, 10, &again).await.unwrap().fired, 0);
    assert_eq!(fires(&world, schedule.id).await, []);
    assert_eq!(world.list(TaskFilter::default()).await, []);
}

pub(crate) async fn catching_up_makes_a_thousand_fires_at_once(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.misfire_policy = MisfirePolicy::FireAll;
    schedule.definition.overlap_policy = OverlapPolicy::Queue;
    schedule.definition.misfire_window_seconds = 1_000_000;
    world.create_schedule(&schedule).await.unwrap();
    world.advance(MINUTE * 1_100);
    assert_eq!(world.tick_by_the_rules().await.fired, Room::FRESH.fires as u64);
    assert_eq!(world.tick_by_the_rules().await.fired, 100);
    // They run one at a time, the oldest first.
    let claimed = world.claim_one("report").await;
    assert_eq!(claimed.fire.unwrap().scheduled_at, schedule.next_fire_at.unwrap());
}

pub(crate) async fn many_schedules_are_decided_in_one_tick(world: World) {
    for i in 0..100 {
        world.every_minute(&format!("schedule {i}")).await;
    }
    world.advance_secs(61);
    assert_eq!(counts(&world.tick_by_the_rules().await), [100, 100, 0, 0]);
    assert_eq!(world.claim_up_to(200, "report").await.len(), 100);
}

pub(crate) async fn eight_tickers_make_each_fire_once(world: World) {
    const SCHEDULES: usize = 20;
    for i in 0..SCHEDULES {
        let mut schedule = world.unwritten(&format!("schedule {i}"));
        schedule.definition.misfire_policy = MisfirePolicy::FireAll;
        schedule.definition.overlap_policy = OverlapPolicy::Allow;
        world.create_schedule(&schedule).await.unwrap();
    }
    world.advance_secs(181);
    let ticked = side_by_side(world.eight_nodes().await, |node| async move {
        let mut fired = 0;
        // Passed over by one tick means in the hands of another, so a few rounds reach all.
        for _ in 0..10 {
            fired += node.tick_by_the_rules().await.fired;
        }
        fired
    })
    .await;
    assert_eq!(ticked.iter().sum::<u64>(), 3 * SCHEDULES as u64);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 3 * SCHEDULES);
    assert_eq!(world.database.count("punctual_fires").await, 3 * SCHEDULES as i64);
}

pub(crate) async fn a_tick_outlives_a_restart(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    let fired = fires(&world, schedule.id).await;
    let world = world.reopen().await;
    assert_eq!(fires(&world, schedule.id).await, fired);
    assert_eq!(world.tick_by_the_rules().await, Ticked::default());
}

pub(crate) async fn a_schedule_on_the_databases_own_clock(world: World) {
    let world = world.reopen_on_the_databases_clock().await;
    let now = world.store.now().await.unwrap();
    let mut schedule = world.unwritten("nightly");
    schedule.next_fire_at = Some(now);
    let mut later = world.unwritten("later");
    later.next_fire_at = Some(now + TimeDelta::hours(1));
    world.create_schedule(&schedule).await.unwrap();
    world.create_schedule(&later).await.unwrap();
    let decide = |due: &DueSchedule, _| Some(tick(vec![fired(&due.schedule, due.schedule.next_fire_at?)]));
    let ticked = world.tick(Lateness::Any, 10, &decide).await.unwrap();
    assert_eq!((ticked.schedules, ticked.fired), (1, 1));
    assert!(fires(&world, schedule.id).await[0].fired_at >= now);
    assert_eq!(world.claim_one("report").await.fire.unwrap().schedule_id, schedule.id);
    assert_eq!(world.delete_schedule(schedule.id).await, Ok(true));
}
