//! Fires as they are listed, and those that somebody adds.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::fire::{Disposition, Fire, FireKind, FireStatus, NewFire, SkipReason, Tick};
use punctual_domain::id::{FireId, ScheduleId};
use punctual_domain::schedule::{OverlapPolicy, Schedule};
use punctual_domain::store::{Backfill, Backfilled, Bulk, FireFilter, Page, Reply, Span, StoreError, TaskFilter};
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::{Route, TopicDefinition};

use crate::support::*;

fn fired(schedule: &Schedule, at: DateTime<Utc>) -> NewFire {
    let task = Box::new(schedule.task_of_fire(at, false, None));
    NewFire { id: FireId::generate(), scheduled_at: at, disposition: Disposition::Fired(task) }
}

fn skipped(at: DateTime<Utc>, until: DateTime<Utc>) -> NewFire {
    let disposition = Disposition::Skipped { reason: SkipReason::Misfire, until, count: 3 };
    NewFire { id: FireId::generate(), scheduled_at: at, disposition }
}

/// Makes these fires of a due schedule.
async fn make(world: &World, schedule: &Schedule, fires: Vec<NewFire>) {
    let last = fires.last().unwrap().scheduled_at;
    world.clock.advance_to(last);
    let tick = Tick {
        fires,
        resumes: false,
        stops: None,
        cancel_previous: false,
        next_fire_at: None,
        fired_through: last,
        tz_version: "2026a".into(),
    };
    let ticked = world.tick_schedule(schedule.id, &move |_, _| Some(tick.clone())).await.unwrap();
    assert_eq!(ticked.schedules, 1);
}

async fn list(node: &NodeStore, id: ScheduleId, filter: &FireFilter) -> Vec<Fire> {
    node.fires(id, filter, Page::first(1000)).await.unwrap()
}

fn instants(fires: &[Fire]) -> Vec<DateTime<Utc>> {
    fires.iter().map(|fire| fire.scheduled_at).collect()
}

pub(crate) async fn fires_show_where_their_tasks_stand(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    make(&world, &schedule, (1..=5).map(|minute| fired(&schedule, at(minute))).collect()).await;
    let claimed = world.claim_up_to(4, "report").await;
    world.advance_secs(1);
    world.settle_now(&claimed[0], completed()).await;
    world.settle_now(&claimed[1], failed("no é")).await;
    world.cancel(claimed[2].id).await.unwrap();

    let fires = list(&world, schedule.id, &FireFilter::default()).await;
    let statuses: Vec<_> = fires.iter().map(|fire| fire.task.as_ref().unwrap().status.unwrap()).collect();
    assert_eq!(
        statuses,
        [TaskStatus::Pending, TaskStatus::Running, TaskStatus::Cancelled, TaskStatus::Failed, TaskStatus::Completed]
    );
    for fire in &fires {
        let of_fire = fire.task.as_ref().unwrap();
        let task = world.read(of_fire.id).await;
        assert_eq!(task.fire.unwrap().scheduled_at, fire.scheduled_at);
        assert_eq!((of_fire.status, of_fire.attempt), (Some(task.status), task.attempt));
        assert_eq!((of_fire.started_at, of_fire.completed_at), (task.started_at, task.completed_at));
        assert_eq!(of_fire.error, task.error);
    }
}

pub(crate) async fn fires_are_filtered_by_status_and_skips(world: World) {
    let task = FireStatus::Task;
    let (completed_one, failed_one) = (task(TaskStatus::Completed), task(TaskStatus::Failed));
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    let mut batch: Vec<_> = (1..=3).map(|minute| fired(&schedule, at(minute))).collect();
    batch.push(skipped(at(4), at(6)));
    make(&world, &schedule, batch).await;
    let claimed = world.claim_up_to(2, "report").await;
    world.settle_now(&claimed[0], completed()).await;
    world.settle_now(&claimed[1], failed("no")).await;
    for (status, expected) in [
        (vec![], vec![4, 3, 2, 1]),
        (vec![completed_one], vec![1]),
        (vec![failed_one], vec![2]),
        (vec![task(TaskStatus::Pending), completed_one], vec![3, 1]),
        (vec![FireStatus::Skipped], vec![4]),
        (vec![failed_one, FireStatus::Skipped], vec![4, 2]),
        (vec![task(TaskStatus::Running)], vec![]),
        (vec![FireStatus::Dispatched], vec![]),
    ] {
        let filter = FireFilter { status: status.clone(), ..Default::default() };
        let expected: Vec<_> = expected.into_iter().map(at).collect();
        assert_eq!(instants(&list(&world, schedule.id, &filter).await), expected, "{status:?}");
    }
}

pub(crate) async fn a_span_of_fires_finds_runs_that_overlap_it(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    let batch = vec![fired(&schedule, at(1)), skipped(at(2), at(4)), fired(&schedule, at(5))];
    make(&world, &schedule, batch).await;
    for (from, to, expected) in [
        (None, None, vec![5, 2, 1]),
        (Some(1), Some(2), vec![1]),
        (Some(2), Some(3), vec![2]),
        (Some(3), Some(4), vec![2]),
        (Some(4), Some(5), vec![2]),
        (Some(4), None, vec![5, 2]),
        (None, Some(3), vec![2, 1]),
        (None, Some(1), vec![]),
        (Some(6), None, vec![]),
    ] {
        let filter = FireFilter { scheduled_at: Span { from: from.map(at), to: to.map(at) }, ..Default::default() };
        let expected: Vec<_> = expected.into_iter().map(at).collect();
        assert_eq!(instants(&list(&world, schedule.id, &filter).await), expected, "{from:?} to {to:?}");
    }
}

pub(crate) async fn pages_of_fires_miss_and_repeat_none(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    make(&world, &schedule, (31..=60).map(|minute| fired(&schedule, at(minute))).collect()).await;
    // Older instants that are filled in later are newer.
    world.backfill(schedule.id, (1..=30).map(at).collect()).await.unwrap();
    world.every_minute("another").await;

    let all = list(&world, schedule.id, &FireFilter::default()).await;
    let newest_first: Vec<_> = (1..=30).rev().chain((31..=60).rev()).map(at).collect();
    assert_eq!(instants(&all), newest_first);
    let mut page = Page::first(7);
    let mut found = Vec::new();
    loop {
        let fires = world.fires(schedule.id, &FireFilter::default(), page).await.unwrap();
        let Some(last) = fires.last() else { break };
        assert!(fires.len() <= 7);
        page.after = Some(last.id);
        found.extend(fires);
    }
    assert_eq!(found, all);
}

pub(crate) async fn fires_of_an_unknown_schedule_are_none(world: World) {
    assert_eq!(list(&world, ScheduleId::generate(), &FireFilter::default()).await, []);
}

pub(crate) async fn a_trigger_makes_a_task_and_leaves_the_schedule(world: World) {
    let mut definition = TopicDefinition::new("report".parse().unwrap(), Route::Event);
    definition.timeout_seconds = Some(77);
    world.put_topic(&definition).await.unwrap();
    let mut schedule = world.unwritten("nightly");
    schedule.definition.jitter_seconds = 3600;
    schedule.definition.overlap_policy = OverlapPolicy::Queue;
    world.create_schedule(&schedule).await.unwrap();
    let task = world.trigger(schedule.id).await.unwrap();
    assert_eq!(
        (task.run_at, task.timeout_seconds, task.retry.attempts),
        (world.now(), 77, 3),
        "now, as its topic says"
    );
    assert_eq!(task.serial_key, None);
    assert_eq!(world.read(task.id).await, task);

    let fires = list(&world, schedule.id, &FireFilter::default()).await;
    let [found] = fires.as_slice() else { panic!("{fires:?}") };
    assert_eq!((found.kind, found.fired_at, found.tz_version.as_str()), (FireKind::Manual, world.now(), "2026a"));
    assert_eq!(found.task.as_ref().map(|task| task.id), Some(task.id));
    assert_eq!(task.fire.unwrap().scheduled_at, found.scheduled_at);
    let after = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!(after, Schedule { last_fired_at: Some(world.now()), ..schedule });
}

pub(crate) async fn every_trigger_has_an_instant_of_its_own(world: World) {
    let schedule = world.every_minute("nightly").await;
    let triggered = side_by_side(world.eight_nodes().await, |node| async move {
        let first = node.trigger(schedule.id).await.unwrap();
        [first.fire, node.trigger(schedule.id).await.unwrap().fire]
    })
    .await;
    let millis: std::collections::BTreeSet<_> =
        triggered.iter().flatten().map(|fire| fire.unwrap().scheduled_at.timestamp_millis()).collect();
    assert_eq!(millis.len(), 16);
    assert!(millis.iter().all(|millis| millis % 1000 != 0), "whole seconds are the schedule's own");
    assert_eq!(world.trigger(ScheduleId::generate()).await, Err(StoreError::NotFound));
}

pub(crate) async fn a_paused_schedule_can_be_triggered(world: World) {
    let paused = world.every_minute("nightly").await.paused(None, None);
    world.update_schedule(&paused).await.unwrap();
    assert_eq!(world.trigger(paused.id).await.unwrap().fire.unwrap().schedule_id, paused.id);
}

pub(crate) async fn a_backfill_makes_what_has_not_fired(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    make(&world, &schedule, vec![fired(&schedule, at(1)), skipped(at(2), at(4)), fired(&schedule, at(5))]).await;
    let done = world.backfill(schedule.id, (-1..=6).map(at).collect()).await;
    let made = [-1, 0, 2, 3, 4, 6].map(at).to_vec();
    assert_eq!(done, Ok(Backfilled { made, already_fired: 2, left: 0 }), "a skipped instant has not fired");
    let done = world.backfill(schedule.id, (-1..=7).map(at).collect()).await;
    assert_eq!(done, Ok(Backfilled { made: vec![at(7)], already_fired: 8, left: 0 }));

    let tasks = world.list(TaskFilter { schedule_id: Some(schedule.id), ..Default::default() }).await;
    let filled_in: Vec<_> = tasks.iter().filter(|task| task.serial_key.is_some()).collect();
    assert_eq!(filled_in.len(), 7, "one after the other");
    assert!(filled_in.iter().all(|task| task.run_at == world.now()), "behind fresh work");
    let after = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!((after.fires_made, after.version, after.fired_through), (2, 1, Some(at(5))));
    // The schedule's own fire of an instant that was filled in is none of it.
    assert_eq!(world.database.count("punctual_fires").await, 10);
}

pub(crate) async fn a_backfill_leaves_to_a_schedule_what_it_has_still_to_decide(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    world.clock.advance_to(at(4));
    // Nobody has decided the minutes 2 to 4, and 5 has not come.
    let around = || (-1..=5).map(at).collect::<Vec<_>>();
    let done = world.backfill(schedule.id, around()).await;
    assert_eq!(done, Ok(Backfilled { made: vec![at(-1), at(0)], already_fired: 1, left: 4 }));
    while world.tick_by_the_rules().await != Default::default() {}
    let done = world.backfill(schedule.id, around()).await.unwrap();
    assert_eq!(done.left, 1);
    world.advance_secs(60);
    while world.tick_by_the_rules().await != Default::default() {}
    let span = Span { from: Some(at(-9)), to: Some(at(9)) };
    assert_eq!(world.several_tasks(schedule.id, span, 10).await, Ok(vec![]));

    // What a pause leaves out can be filled in, up to where it ends by itself.
    let read = world.schedule(schedule.id).await.unwrap().unwrap();
    let paused = world.update_schedule(&read.paused(None, Some(at(20)))).await.unwrap();
    world.clock.advance_to(at(21));
    let done = world.backfill(schedule.id, vec![at(10), at(19), at(20), at(21)]).await;
    assert_eq!(done, Ok(Backfilled { made: vec![at(10), at(19)], already_fired: 0, left: 2 }));
    world.tick_by_the_rules().await;
    let read = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!((read.version, read.enabled), (paused.version + 1, true));
    world.update_schedule(&read.paused(None, None)).await.unwrap();
    world.clock.advance_to(at(40));
    let done = world.backfill(schedule.id, vec![at(30), at(39)]).await;
    assert_eq!(done, Ok(Backfilled { made: vec![at(30), at(39)], already_fired: 0, left: 0 }));
}

pub(crate) async fn a_backfill_over_its_bound_makes_nothing(world: World) {
    let schedule = world.every_minute("nightly").await;
    let instants: Vec<_> = (1..=5).map(|minute| schedule.created_at - TimeDelta::minutes(minute)).collect();
    let backfill = |most, bulk| Backfill { instants: instants.clone(), most, bulk, tz_version: "2026a".into() };
    let run = |most, bulk| world.store.backfill(schedule.id, backfill(most, bulk), None);
    assert_eq!(run(4, Bulk::Apply).await, Err(StoreError::TooManyFires(5)));
    assert_eq!(run(4, Bulk::DryRun).await, Err(StoreError::TooManyFires(5)));
    let would = Reply::Made(Backfilled { made: instants.clone(), already_fired: 0, left: 0 });
    assert_eq!(run(5, Bulk::DryRun).await, Ok(would.clone()));
    assert_eq!(world.list(TaskFilter::default()).await, []);
    assert_eq!(list(&world, schedule.id, &FireFilter::default()).await, []);
    assert_eq!(run(5, Bulk::Apply).await, Ok(would));
    assert_eq!(run(0, Bulk::Apply).await, Ok(Reply::Made(Backfilled { made: vec![], already_fired: 5, left: 0 })));
    let unknown = world.store.backfill(ScheduleId::generate(), backfill(5, Bulk::Apply), None).await;
    assert_eq!(unknown, Err(StoreError::NotFound));
}

pub(crate) async fn eight_backfills_of_one_stretch_make_each_fire_once(world: World) {
    let schedule = world.every_minute("nightly").await;
    let instants: Vec<_> = (1..=20).map(|minute| schedule.created_at - TimeDelta::minutes(minute)).collect();
    let done = side_by_side(world.eight_nodes().await, |node| {
        let instants = instants.clone();
        async move { node.backfill(schedule.id, instants).await.unwrap() }
    })
    .await;
    assert_eq!(done.iter().map(|done| done.made.len()).sum::<usize>(), 20);
    assert!(done.iter().all(|done| done.made.len() as u64 + done.already_fired == 20));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 20);
}

pub(crate) async fn a_fire_outlives_its_pruned_task(world: World) {
    let mut short = TopicDefinition::new("report".parse().unwrap(), Route::Event);
    short.retention_days = Some(1);
    world.put_topic(&short).await.unwrap();
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    world.settle_now(&world.claim_one("report").await, completed()).await;
    world.advance(TimeDelta::days(2));
    let pruned = world.prune(Duration::from_secs(30 * 86_400), 100).await.unwrap();
    assert_eq!((pruned.tasks, pruned.fires), (1, 0));
    let fires = list(&world, schedule.id, &FireFilter::default()).await;
    assert_eq!(fires.len(), 1);
    assert_eq!(fires[0].reason, None);
    assert_eq!(fires[0].task.as_ref().and_then(|task| task.status), None);
}
