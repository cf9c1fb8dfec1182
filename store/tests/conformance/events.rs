//! Events: what happened to tasks, read back from the rows that prove it.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::event::EventKind;
use punctual_domain::store::{EventCursor, Settled, Settling};
use punctual_domain::task::{Settlement, Task, TaskStatus};

use crate::support::*;

/// What happened since the beginning: what, when, and in which attempt.
async fn happened(world: &World) -> Vec<(EventKind, DateTime<Utc>, u32)> {
    let beginning: DateTime<Utc> = BEGINNING.parse().unwrap();
    let events = world.events(&EventCursor::since(beginning), 1000).await.unwrap();
    for event in &events {
        assert_eq!(event.task, world.read(event.task.id).await, "the task as it stands now");
    }
    let ids: BTreeSet<_> = events.iter().map(|event| event.id()).collect();
    assert_eq!(ids.len(), events.len(), "each event once");
    events.into_iter().map(|event| (event.kind, event.at, event.attempt)).collect()
}

pub(crate) async fn an_attempts_beginning_and_the_tasks_end_are_told(world: World) {
    world.add(task("mail")).await;
    assert_eq!(happened(&world).await, []);
    let running = world.claim_one("mail").await;
    let began = (EventKind::Arrived, world.now(), 1);
    assert_eq!(happened(&world).await, [began]);
    world.advance_secs(1);
    world.settle_now(&running, completed()).await;
    assert_eq!(happened(&world).await, [began, (EventKind::Completed, world.now(), 1)]);
}

pub(crate) async fn every_end_is_told_once(world: World) {
    for (status, kind) in [
        (TaskStatus::Completed, EventKind::Completed),
        (TaskStatus::Failed, EventKind::Failed),
        (TaskStatus::Cancelled, EventKind::Cancelled),
    ] {
        let ended = world.ended(task("mail"), status).await;
        world.advance_secs(1);
        world.cancel(ended.id).await.unwrap();
        let since = EventCursor::since(ended.completed_at.unwrap());
        let ends: Vec<_> = world.events(&since, 100).await.unwrap();
        let ends: Vec<_> =
            ends.iter().filter(|event| event.task.id == ended.id && event.kind != EventKind::Arrived).collect();
        assert_eq!(ends.len(), 1);
        assert_eq!((ends[0].kind, Some(ends[0].at), ends[0].attempt), (kind, ended.completed_at, 1));
    }
}

pub(crate) async fn every_attempt_of_a_troubled_life_is_told_in_order(world: World) {
    world.add(task("mail")).await;
    let mut expected = Vec::new();
    for (settlement, number) in [(retried(0), 1), (snoozed(0), 2), (Settlement::HandedBack, 3), (retried(0), 3)] {
        let claimed = world.claim_one("mail").await;
        expected.push((EventKind::Arrived, world.now(), number));
        world.advance_secs(1);
        world.settle_now(&claimed, settlement).await;
        world.advance_secs(1);
    }
    world.claim_one("mail").await;
    expected.push((EventKind::Arrived, world.now(), 4));
    world.advance_secs(30);
    world.expire(3, 10).await.unwrap();
    let last = world.claim_one("mail").await;
    expected.push((EventKind::Arrived, world.now(), 5));
    assert_eq!(happened(&world).await, expected);
    world.advance_secs(1);
    world.settle_now(&last, failed("no")).await;
    expected.push((EventKind::Failed, world.now(), 5));
    assert_eq!(happened(&world).await, expected);
}

pub(crate) async fn a_task_lost_too_often_is_told_as_failed(world: World) {
    world.running(task("mail")).await;
    let began = world.now();
    world.advance_secs(30);
    world.expire(1, 10).await.unwrap();
    assert_eq!(happened(&world).await, [(EventKind::Arrived, began, 1), (EventKind::Failed, world.now(), 1)]);
}

pub(crate) async fn a_task_cancelled_before_it_ran_only_ends(world: World) {
    let pending = world.add(task("mail")).await;
    world.cancel(pending.id).await.unwrap();
    assert_eq!(happened(&world).await, [(EventKind::Cancelled, world.now(), 0)]);
}

pub(crate) async fn events_of_many_tasks_come_oldest_first(world: World) {
    world.add_all((0..10).map(|_| task("mail"))).await;
    let mut expected = Vec::new();
    for _ in 0..5 {
        let mut pair = world.claim_up_to(2, "mail").await;
        expected.extend([(EventKind::Arrived, world.now(), 1); 2]);
        world.advance_secs(1);
        world.settle_now(&pair.remove(0), completed()).await;
        expected.push((EventKind::Completed, world.now(), 1));
        world.advance_secs(1);
        world.settle_now(&pair.remove(0), failed("no")).await;
        expected.push((EventKind::Failed, world.now(), 1));
        world.advance_secs(1);
    }
    assert_eq!(happened(&world).await, expected);
}

pub(crate) async fn a_reader_that_resumes_skips_nothing(world: World) {
    for _ in 0..10 {
        let running = world.running(task("mail")).await;
        world.advance_secs(1);
        world.settle_now(&running, completed()).await;
        world.advance_secs(1);
    }
    let all = happened(&world).await;
    assert_eq!(all.len(), 20);
    let mut seen: Vec<(EventKind, DateTime<Utc>, u32)> = Vec::new();
    let mut since = all[0].1 - TimeDelta::seconds(1);
    while seen.len() < all.len() {
        let events = world.events(&EventCursor::since(since), 4).await.unwrap();
        assert!(events.len() <= 4);
        let known = seen.len();
        for event in events {
            since = event.at - TimeDelta::microseconds(1);
            let event = (event.kind, event.at, event.attempt);
            if !seen.contains(&event) {
                seen.push(event);
            }
        }
        assert!(seen.len() > known, "no way on after {since}");
    }
    assert_eq!(seen, all);
    let after_the_last = all[19].1 + TimeDelta::microseconds(1);
    assert_eq!(world.events(&EventCursor::since(after_the_last), 10).await, Ok(vec![]));
}

pub(crate) async fn pages_over_a_settled_batch_tell_each_event_once(world: World) {
    world.add_all((0..50).map(|_| task("mail"))).await;
    let running = world.claim_up_to(50, "mail").await;
    let settle = |task: &Task| Settling { task_id: task.id, epoch: task.epoch, settlement: completed() };
    assert_eq!(world.settle(running.iter().map(settle).collect()).await, Ok(vec![Settled::Now; 50]));

    let beginning = EventCursor::since(BEGINNING.parse().unwrap());
    let all = world.events(&beginning, 1000).await.unwrap();
    assert_eq!(all.len(), 100);
    assert!(all.iter().all(|event| event.at == world.now()), "one instant");
    assert!(all.is_sorted_by_key(EventCursor::of));
    let mut seen = Vec::new();
    let mut after = beginning;
    for _ in 0..10 {
        let page = world.events(&after, 10).await.unwrap();
        assert_eq!(page.len(), 10);
        after = EventCursor::of(&page[9]);
        seen.extend(page);
    }
    assert_eq!(seen, all);
    assert_eq!(world.events(&after, 10).await, Ok(vec![]));
}

pub(crate) async fn events_of_one_task_at_one_instant_come_in_order(world: World) {
    for attempt in 1..=3 {
        let claimed = if attempt == 1 { world.running(task("mail")).await } else { world.claim_one("mail").await };
        world.settle_now(&claimed, if attempt < 3 { retried(0) } else { completed() }).await;
    }
    let mut after = EventCursor::since(BEGINNING.parse().unwrap());
    for expected in
        [(EventKind::Arrived, 1), (EventKind::Arrived, 2), (EventKind::Arrived, 3), (EventKind::Completed, 3)]
    {
        let page = world.events(&after, 1).await.unwrap();
        assert_eq!((page[0].kind, page[0].attempt), expected);
        after = EventCursor::of(&page[0]);
    }
    assert_eq!(world.events(&after, 1).await, Ok(vec![]));
}
