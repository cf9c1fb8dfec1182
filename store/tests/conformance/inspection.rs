//! What whoever asks "did it?" and "why not?" gets to know.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::fire::{Disposition, FireKind, NewFire, SkipReason, Tick};
use punctual_domain::id::{FireId, TaskId};
use punctual_domain::proof::LedgerRow;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{FireFilter, Lateness, Page, Span, Standing, StoreError, TaskFilter};
use punctual_domain::task::NewTask;
use punctual_store::{Access, connect};

use crate::support::*;

fn fired(schedule: &Schedule, at: DateTime<Utc>) -> NewFire {
    let task = Box::new(schedule.task_of_fire(at, false, None));
    NewFire { id: FireId::generate(), scheduled_at: at, disposition: Disposition::Fired(task) }
}

fn skipped(at: DateTime<Utc>, until: DateTime<Utc>, count: u64) -> NewFire {
    let disposition = Disposition::Skipped { reason: SkipReason::Misfire, until, count };
    NewFire { id: FireId::generate(), scheduled_at: at, disposition }
}

/// Makes these fires of a schedule that is due.
async fn make(world: &World, schedule: &Schedule, fires: Vec<NewFire>) {
    let last = fires.last().unwrap().scheduled_at;
    world.clock.advance_to(last);
    let tick = Tick {
        fires,
        resumes: false,
        stops: None,
        cancel_previous: false,
        next_fire_at: Some(last + TimeDelta::minutes(1)),
        fired_through: last,
        tz_version: "2026a".into(),
    };
    let id = schedule.id;
    world.tick(Lateness::Any, 10, &|due, _| (due.schedule.id == id).then(|| tick.clone())).await.unwrap();
}

async fn ledger(world: &World, schedule: &Schedule, span: Span, limit: u32) -> Vec<LedgerRow> {
    let mut rows: Vec<LedgerRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| (row.scheduled_at, row.kind));
        let page = world.ledger(schedule.id, span, after, limit).await.unwrap();
        if page.is_empty() {
            return rows;
        }
        assert!(page.len() <= limit as usize);
        rows.extend(page);
    }
}

pub(crate) async fn a_ledger_comes_in_order_and_begins_with_the_row_before(world: World) {
    let schedule = world.every_minute("nightly").await;
    let other = world.every_minute("other").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    let fires = vec![
        fired(&schedule, at(1)),
        fired(&schedule, at(2)),
        skipped(at(3), at(6), 4),
        fired(&schedule, at(7)),
        fired(&schedule, at(8)),
    ];
    make(&world, &schedule, fires).await;
    assert_eq!(world.backfill(schedule.id, vec![at(5)]).await.unwrap().made, [at(5)]);
    // A trigger has an instant of its own, a moment after the eighth minute; it stands for the ninth below.
    let triggered_at = world.trigger(schedule.id).await.unwrap().fire.unwrap().scheduled_at;
    assert!((at(8)..at(9)).contains(&triggered_at), "{triggered_at}");
    for (from, to, expected) in [
        (None, None, vec![1, 2, 3, 5, 7, 8, 9]),
        (Some(2), Some(8), vec![1, 2, 3, 5, 7]),
        (Some(4), Some(7), vec![3, 5]),
        (Some(6), Some(7), vec![3, 5]),
        (Some(8), None, vec![7, 8, 9]),
        (Some(0), Some(1), vec![]),
        (Some(20), Some(30), vec![8, 9]),
    ] {
        let span = Span { from: from.map(at), to: to.map(at) };
        for limit in [1, 2, 100] {
            let rows = ledger(&world, &schedule, span, limit).await;
            let instants: Vec<_> = rows.iter().map(|row| row.scheduled_at).collect();
            let instant = |minute: &i64| if *minute == 9 { triggered_at } else { at(*minute) };
            let expected: Vec<_> = expected.iter().map(instant).collect();
            assert_eq!(instants, expected, "{from:?} to {to:?}, {limit} at once");
        }
    }
    let rows = ledger(&world, &schedule, Span::default(), 100).await;
    assert_eq!((rows[2].reason, rows[2].until, rows[2].count), (Some(SkipReason::Misfire), Some(at(6)), 4));
    assert_eq!((rows[0].kind, rows[3].kind), (FireKind::Schedule, FireKind::Backfill));
    assert_eq!((rows[0].fired_at, rows[0].tz_version.as_str()), (at(8), "2026a"));
    assert!(ledger(&world, &other, Span { to: Some(at(1)), from: None }, 10).await.is_empty());
}

pub(crate) async fn instants_with_several_tasks_are_found_and_retries_are_not(world: World) {
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    make(&world, &schedule, (1..=3).map(|minute| fired(&schedule, at(minute))).collect()).await;
    let claimed = world.claim_up_to(3, "report").await;
    world.settle_now(&claimed[0], failed("no")).await;
    world.retry(claimed[0].id).await.unwrap();
    let span = Span { from: Some(at(0)), to: Some(at(10)) };
    assert_eq!(world.several_tasks(schedule.id, span, 10).await.unwrap(), []);

    // Behind the schedule's back: one beside a live task, two beside an ended one.
    for minute in [1, 1, 2] {
        world.add(schedule.task_of_fire(at(minute), false, None)).await;
    }
    assert_eq!(world.several_tasks(schedule.id, span, 10).await.unwrap(), [(at(1), 3), (at(2), 2)]);
    assert_eq!(world.several_tasks(schedule.id, span, 1).await.unwrap(), [(at(1), 3)]);
    let later = Span { from: Some(at(2)), to: None };
    assert_eq!(world.several_tasks(schedule.id, later, 10).await.unwrap(), [(at(2), 2)]);
}

pub(crate) async fn deleted_schedules_are_still_known(world: World) {
    let first = world.every_minute("nightly").await;
    world.advance_secs(1);
    world.delete_schedule(first.id).await.unwrap();
    assert_eq!(world.schedule_once_named("nightly").await.unwrap(), Some(first.id));
    world.advance_secs(1);
    let second = world.every_minute("nightly").await;
    let third = world.every_minute("weekly").await;
    world.update_schedule(&third).await.unwrap();
    assert_eq!(world.schedule_once_named("nightly").await.unwrap(), Some(second.id));
    assert_eq!(world.schedule_once_named("nightl").await.unwrap(), None);
    let mut ids = vec![first.id, second.id, third.id];
    ids.sort_unstable();
    assert_eq!(world.schedules_ever(None, 10).await.unwrap(), ids);
    assert_eq!(world.schedules_ever(None, 2).await.unwrap(), ids[..2]);
    assert_eq!(world.schedules_ever(Some(ids[1]), 10).await.unwrap(), ids[2..]);
}

pub(crate) async fn it_is_noted_how_far_fires_were_pruned(world: World) {
    assert_eq!(world.fires_pruned_before().await.unwrap(), None);
    let schedule = world.every_minute("nightly").await;
    let at = |minute| schedule.created_at + TimeDelta::minutes(minute);
    make(&world, &schedule, vec![skipped(at(1), at(1), 1)]).await;
    world.advance_secs(3600);
    let day = Duration::from_secs(24 * 60 * 60);
    world.prune(day, 10).await.unwrap();
    assert_eq!(world.fires_pruned_before().await.unwrap(), None, "nothing was removed");
    world.advance(TimeDelta::days(1));
    assert_eq!(world.prune(day, 10).await.unwrap().fires, 1);
    let before = world.now() - TimeDelta::days(1);
    assert_eq!(world.fires_pruned_before().await.unwrap(), Some(before));

    // Who keeps more for once does not make what is gone provable again.
    make(&world, &schedule, vec![skipped(at(2), at(2), 1)]).await;
    world.advance(TimeDelta::days(10));
    assert_eq!(world.prune(Duration::from_secs(1), 10).await.unwrap().fires, 1);
    let before = world.now() - TimeDelta::seconds(1);
    make(&world, &schedule, vec![skipped(at(3), at(3), 1)]).await;
    world.advance(TimeDelta::days(2));
    assert_eq!(world.prune(Duration::from_secs(2 * 24 * 60 * 60 - 1), 10).await.unwrap().fires, 1);
    assert!(world.fires_pruned_before().await.unwrap().unwrap() >= before);
}

pub(crate) async fn a_fire_is_found_by_its_id(world: World) {
    let schedule = world.every_minute("nightly").await;
    make(&world, &schedule, vec![fired(&schedule, schedule.created_at + TimeDelta::minutes(1))]).await;
    let listed = world.fires(schedule.id, &FireFilter::default(), Page::first(10)).await.unwrap();
    assert_eq!(world.fire(listed[0].id).await.unwrap().as_ref(), Some(&listed[0]));
    assert_eq!(world.fire(FireId::generate()).await.unwrap(), None);
}

pub(crate) async fn what_stands_before_a_task_is_told(world: World) {
    let standing = async |id: TaskId| world.standing(id).await.unwrap();
    let running = world.running(task("mail").serial_key("a")).await;
    let urgent = world.add(task("mail").priority(5)).await;
    world.advance_secs(1);
    let waits = world.add(task("mail").serial_key("a")).await;
    let last = world.add(task("mail").serial_key("a")).await;
    world.add(task("mail").priority(-1)).await;
    world.add(task("mail").priority(9).in_secs(60)).await;
    world.add(task("other").priority(9)).await;

    let expected = |ahead, serial| Some(Standing { ahead, running: 1, serial });
    assert_eq!(standing(urgent.id).await, expected(0, None));
    assert_eq!(standing(waits.id).await, expected(1, Some(running.id)));
    assert_eq!(standing(last.id).await, expected(2, Some(running.id)));
    world.settle_now(&running, completed()).await;
    assert_eq!(standing(running.id).await, None);
    assert_eq!(standing(last.id).await, Some(Standing { ahead: 2, running: 0, serial: Some(waits.id) }));
    assert_eq!(standing(waits.id).await, Some(Standing { ahead: 1, running: 0, serial: None }));
    assert_eq!(standing(TaskId::generate()).await, None);
}

pub(crate) async fn who_leads_and_which_zone_data_was_noted_can_be_read(world: World) {
    assert_eq!(world.leadership("ticker").await.unwrap(), None);
    assert_eq!(world.noted_tz_version().await.unwrap(), None);
    let leads = world.lead("ticker", world.id, Duration::from_secs(15)).await.unwrap();
    assert_eq!(world.leadership("ticker").await.unwrap(), Some(leads));
    assert_eq!(world.leadership("other").await.unwrap(), None);
    world.note_tz_version("2026e").await.unwrap();
    assert_eq!(world.noted_tz_version().await.unwrap().as_deref(), Some("2026e"));
}

pub(crate) async fn a_look_reads_beside_whoever_owns_the_database_and_writes_nothing(world: World) {
    let made = world.add(task("mail")).await;
    let options = punctual_store::Options { access: Access::Look, connections: 2, ..options(None) };
    let look = connect(&world.database.url(), options).await.unwrap();
    assert_eq!(look.task(made.id).await.unwrap().unwrap().task.id, made.id);
    let refused = look.create_tasks(vec![NewTask::new(topic("mail"))], None).await;
    assert!(matches!(refused, Err(StoreError::Unavailable(_))), "{refused:?}");
    // The owner goes on, and the look sees it.
    let later = world.add(task("mail")).await;
    assert!(look.task(later.id).await.unwrap().is_some());
    look.close().await.unwrap();
    world.claim_up_to(2, "mail").await;
    assert_eq!(world.tasks(&TaskFilter::default(), Page::first(10)).await.unwrap().len(), 2);
}
