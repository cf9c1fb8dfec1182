//! Fires as they are listed, and those that somebody adds.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::fire::{Disposition, Fire, FireKind, NewFire, SkipReason, Tick};
use punctual_domain::id::{FireId, ScheduleId};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{FireFilter, Page, Span, StoreError, TaskFilter};
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::{Route, TopicDefinition};

use crate::support::*;

fn fired(schedule: &Schedule, at: DateTime<Utc>) -> NewFire {
    let task = Box::new(schedule.task_of_fire(at, false));
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
    let mut due = world.schedule(schedule.id).await.unwrap().unwrap();
    due.next_fire_at = Some(fires[0].scheduled_at);
    world.update_schedule(&due).await.unwrap();
    let tick =
        Tick { fires, cancel_previous: false, next_fire_at: None, fired_through: last, tz_version: "2026a".into() };
    world.tick(10, &move |_, _| Some(tick.clone())).await.unwrap();
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
    use TaskStatus::{Completed, Failed, Pending};
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    let mut batch: Vec<_> = (1..=3).map(|minute| fired(&schedule, at(minute))).collect();
    batch.push(skipped(at(4), at(6)));
    make(&world, &schedule, batch).await;
    let claimed = world.claim_up_to(2, "report").await;
    world.settle_now(&claimed[0], completed()).await;
    world.settle_now(&claimed[1], failed("no")).await;
    for (status, skipped, expected) in [
        (vec![], false, vec![4, 3, 2, 1]),
        (vec![Completed], false, vec![1]),
        (vec![Failed], false, vec![2]),
        (vec![Pending, Completed], false, vec![3, 1]),
        (vec![], true, vec![4]),
        (vec![Failed], true, vec![4, 2]),
        (vec![TaskStatus::Running], false, vec![]),
    ] {
        let filter = FireFilter { status: status.clone(), skipped, ..Default::default() };
        let expected: Vec<_> = expected.into_iter().map(at).collect();
        assert_eq!(instants(&list(&world, schedule.id, &filter).await), expected, "{status:?} {skipped}");
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
    make(&world, &schedule, (1..=30).map(|minute| fired(&schedule, at(minute))).collect()).await;
    // The same instants once more, of another kind: pages must not break between equal instants.
    let again = (1..=30).map(|minute| fired(&schedule, at(minute))).collect();
    world.add_fires(schedule.id, FireKind::Backfill, again, "2026a").await.unwrap();
    world.every_minute("another").await;

    let all = list(&world, schedule.id, &FireFilter::default()).await;
    assert_eq!(all.len(), 60);
    assert!(all.is_sorted_by(|a, b| (a.scheduled_at, a.id) > (b.scheduled_at, b.id)));
    let mut page = Page::first(7);
    let mut found = Vec::new();
    loop {
        let fires = world.fires(schedule.id, &FireFilter::default(), page).await.unwrap();
        let Some(last) = fires.last() else { break };
        assert!(fires.len() <= 7);
        page.after = Some((last.scheduled_at, last.id));
        found.extend(fires);
    }
    assert_eq!(found, all);
}

pub(crate) async fn fires_of_an_unknown_schedule_are_none(world: World) {
    assert_eq!(list(&world, ScheduleId::generate(), &FireFilter::default()).await, []);
}

pub(crate) async fn an_added_fire_makes_a_task_and_leaves_the_schedule(world: World) {
    let schedule = world.every_minute("nightly").await;
    let fire = fired(&schedule, world.now());
    let written_fires = world.add_fires(schedule.id, FireKind::Manual, vec![fire.clone()], "2026a").await;
    assert_eq!(written_fires, Ok(vec![fire.id]));

    let task = world.claim_one("report").await;
    assert_eq!(task.fire.unwrap().schedule_id, schedule.id);
    let fires = list(&world, schedule.id, &FireFilter::default()).await;
    let [found] = fires.as_slice() else { panic!("{fires:?}") };
    assert_eq!((found.id, found.kind, found.fired_at), (fire.id, FireKind::Manual, world.now()));
    assert_eq!((found.tz_version.as_str(), found.task.as_ref().unwrap().id), ("2026a", task.id));
    let after = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!((after.next_fire_at, after.version), (schedule.next_fire_at, schedule.version));
    assert_eq!(after.fired_through, schedule.fired_through);
}

pub(crate) async fn an_instant_fires_once_per_kind(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = schedule.next_fire_at.unwrap();
    for kind in [FireKind::Manual, FireKind::Backfill] {
        let first = fired(&schedule, at);
        let batch = vec![first.clone()];
        assert_eq!(world.add_fires(schedule.id, kind, batch, "2026a").await, Ok(vec![first.id]));
        // Again, beside one that is new: only the new one is written.
        let new = fired(&schedule, at + TimeDelta::minutes(1));
        let batch = vec![fired(&schedule, at), new.clone()];
        assert_eq!(world.add_fires(schedule.id, kind, batch, "2026a").await, Ok(vec![new.id]));
    }
    assert_eq!(world.list(TaskFilter::default()).await.len(), 4);
    // The schedule's own fire of that instant is none of theirs. Its policy is to skip while tasks live.
    world.advance_secs(61);
    assert_eq!(world.tick_by_the_rules().await.skipped, 1);
}

pub(crate) async fn fires_are_not_added_to_an_unknown_schedule(world: World) {
    let schedule = world.unwritten("nightly");
    let batch = vec![fired(&schedule, world.now())];
    let refused = world.add_fires(schedule.id, FireKind::Manual, batch, "2026a").await;
    assert_eq!(refused, Err(StoreError::NotFound));
    assert_eq!(world.list(TaskFilter::default()).await, []);
}

pub(crate) async fn eight_backfills_of_one_stretch_make_each_fire_once(world: World) {
    let schedule = world.every_minute("nightly").await;
    let made = side_by_side(world.eight_nodes().await, |node| {
        let schedule = schedule.clone();
        async move {
            let at = |minute| schedule.created_at - TimeDelta::minutes(minute);
            let batch = (1..=20).map(|minute| fired(&schedule, at(minute))).collect();
            node.add_fires(schedule.id, FireKind::Backfill, batch, "2026a").await.unwrap().len()
        }
    })
    .await;
    assert_eq!(made.iter().sum::<usize>(), 20);
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
