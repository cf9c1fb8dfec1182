//! Tasks that are written already claimed, in slots that were lent for them.

use std::sync::Arc;
use std::time::Duration;

use punctual_actors::{Begun, Handlers, Running};
use punctual_domain::id::TaskId;
use punctual_domain::store::{Page, TaskFilter};
use punctual_domain::task::{Due, NewTask, TaskStatus};
use punctual_domain::topic::{Route, TopicDefinition};
use punctual_sdk::Outcome;
use tokio::sync::Semaphore;

use crate::support::{World, does, eventually, task};

/// A tree whose topic `few` has two slots, each held until the gate lets its attempt go.
async fn with_two_slots(world: &World, gate: &Arc<Semaphore>) -> Running {
    let definition = TopicDefinition { concurrency: 2, ..TopicDefinition::new("few".parse().unwrap(), Route::Handler) };
    world.store.put_topic(&definition).await.unwrap();
    let gate = gate.clone();
    let handler = does(move |_| {
        let gate = gate.clone();
        async move {
            gate.acquire().await.unwrap().forget();
            Outcome::completed()
        }
    });
    let tree = world.start(Handlers::default().with("few", handler)).await;
    // The topic's Dispatcher comes with its first task, which takes one of the slots.
    let first = world.add(task("few")).await;
    tree.hints().tasks_written();
    world.until(first, TaskStatus::Running).await;
    tree
}

/// Begins a task as soon as a slot is lent for it.
async fn begin(tree: &Running) -> TaskId {
    let hints = tree.hints();
    eventually(|| async {
        match hints.begin(&task("few")).await?.unwrap() {
            Begun::Here(task) => Some(task.id),
            Begun::Elsewhere(task) => panic!("{} did not begin", task.id),
        }
    })
    .await
}

#[tokio::test]
async fn a_task_begins_as_it_is_written_where_a_slot_is_free() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let tree = with_two_slots(&world, &gate).await;
    let id = begin(&tree).await;
    // It runs before anybody could have claimed it, and ends like any other.
    let running = world.task(id).await.task;
    assert_eq!((running.status, running.epoch.0), (TaskStatus::Running, 1));
    gate.add_permits(2);
    assert_eq!(world.until(id, TaskStatus::Completed).await.attempts.len(), 1);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn no_more_tasks_begin_than_slots_are_free() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let tree = with_two_slots(&world, &gate).await;
    // One slot holds the first task, so there is one to lend.
    let second = begin(&tree).await;
    assert!(tree.hints().begin(&task("few")).await.is_none());
    gate.add_permits(2);
    world.until(second, TaskStatus::Completed).await;
    // Both are free again: each is lent once.
    let more = [begin(&tree).await, begin(&tree).await];
    assert!(tree.hints().begin(&task("few")).await.is_none());
    gate.add_permits(2);
    for id in more {
        world.until(id, TaskStatus::Completed).await;
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn nothing_begins_ahead_of_what_waits_nor_what_is_not_plain_or_not_due() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let tree = with_two_slots(&world, &gate).await;
    let hints = tree.hints();
    let second = begin(&tree).await;
    // With both slots taken a third waits; freed slots go to it before any is lent.
    let third = world.add(task("few")).await;
    hints.tasks_written();
    gate.add_permits(2);
    world.until(second, TaskStatus::Completed).await;
    let fourth = begin(&tree).await;
    assert_ne!(world.task(third).await.task.status, TaskStatus::Pending);
    for refused in [
        NewTask { serial_key: Some("one at a time".into()), ..task("few") },
        NewTask { dedupe_key: Some("only one".into()), ..task("few") },
        NewTask { due: Due::After(Duration::from_secs(1)), ..task("few") },
        task("many"),
    ] {
        assert!(hints.begin(&refused).await.is_none());
    }
    gate.add_permits(2);
    for id in [third, fourth] {
        world.until(id, TaskStatus::Completed).await;
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn slots_that_a_topic_no_longer_has_are_not_lent() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let tree = with_two_slots(&world, &gate).await;
    let hints = tree.hints();
    let second = begin(&tree).await;
    gate.add_permits(2);
    world.until(second, TaskStatus::Completed).await;
    // Both slots may be lent by now; from the next announcement on there is one.
    let definition = TopicDefinition { concurrency: 1, ..TopicDefinition::new("few".parse().unwrap(), Route::Handler) };
    world.store.put_topic(&definition).await.unwrap();
    hints.topics_changed();
    let few = "few".parse().unwrap();
    let running = TaskFilter { status: vec![TaskStatus::Running], topic: Some(few), ..TaskFilter::default() };
    // Whoever is told of the change after it finds one slot at the most.
    eventually(|| async {
        gate.add_permits(1);
        let begun = begin(&tree).await;
        world.until(begun, TaskStatus::Completed).await;
        let held = begin(&tree).await;
        let is_full = hints.begin(&task("few")).await.is_none();
        let count = world.store.tasks(&running, Page::first(9)).await.unwrap().len();
        gate.add_permits(count);
        world.until(held, TaskStatus::Completed).await;
        (is_full && count == 1).then_some(())
    })
    .await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_paused_topic_lends_nothing() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let tree = with_two_slots(&world, &gate).await;
    let hints = tree.hints();
    let second = begin(&tree).await;
    gate.add_permits(2);
    world.until(second, TaskStatus::Completed).await;
    let mut definition = TopicDefinition::new("few".parse().unwrap(), Route::Handler);
    definition.paused = true;
    world.store.put_topic(&definition).await.unwrap();
    hints.topics_changed();
    // From the moment of the news on, nothing begins any more.
    assert!(hints.begin(&task("few")).await.is_none());
    let waiting = world.add(task("few")).await;
    hints.tasks_written();
    assert!(hints.begin(&task("few")).await.is_none());
    assert_eq!(world.task(waiting).await.task.status, TaskStatus::Pending);
    gate.add_permits(9);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_tree_that_drains_hands_back_what_was_begun() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let tree = with_two_slots(&world, &gate).await;
    let id = begin(&tree).await;
    let hints = tree.hints();
    tree.drain(Duration::ZERO).await.unwrap();
    let back = world.task(id).await.task;
    assert_eq!((back.status, back.attempt, back.lost), (TaskStatus::Pending, 0, 0));
    assert!(hints.begin(&task("few")).await.is_none());
}
