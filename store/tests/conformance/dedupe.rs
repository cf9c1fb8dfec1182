//! `dedupeKey`: one live task per topic and key.

use punctual_domain::store::{Created, TaskFilter};
use punctual_domain::task::TaskStatus;

use crate::support::*;

pub(crate) async fn a_second_task_of_a_live_key_is_the_first(world: World) {
    let first = world.add(task("mail").dedupe_key("k").payload("1").in_secs(60)).await;
    let second = world.create(task("mail").dedupe_key("k").payload("2")).await.unwrap();
    assert_eq!(deduplicated(second), first);
    assert_eq!(world.list(TaskFilter::default()).await, [first]);
}

pub(crate) async fn a_dedupe_key_belongs_to_its_topic(world: World) {
    world.add(task("mail").dedupe_key("k")).await;
    world.add(task("mail.fast").dedupe_key("k")).await;
    world.add(task("print").dedupe_key("k")).await;
}

pub(crate) async fn dedupe_keys_are_compared_letter_by_letter(world: World) {
    for key in ["k", "K", "k ", " k", "é", "e\u{301}"] {
        world.add(task("mail").dedupe_key(key)).await;
    }
}

pub(crate) async fn a_running_task_holds_its_dedupe_key(world: World) {
    let running = world.running(task("mail").dedupe_key("k")).await;
    let second = world.create(task("mail").dedupe_key("k")).await.unwrap();
    assert_eq!(deduplicated(second), running);
}

pub(crate) async fn a_task_that_waits_for_a_retry_holds_its_dedupe_key(world: World) {
    let running = world.running(task("mail").dedupe_key("k")).await;
    let waits = world.settle_now(&running, retried(60)).await;
    let second = world.create(task("mail").dedupe_key("k")).await.unwrap();
    assert_eq!(deduplicated(second), waits);
}

pub(crate) async fn an_ended_task_frees_its_dedupe_key(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        world.ended(task("mail").dedupe_key("k"), status).await;
    }
    let pending = world.add(task("mail").dedupe_key("k")).await;
    world.cancel(pending.id).await.unwrap();
    world.add(task("mail").dedupe_key("k")).await;
}

pub(crate) async fn a_dedupe_key_twice_in_a_batch_makes_one(world: World) {
    let batch = vec![
        task("mail").dedupe_key("k").payload("1").build(),
        task("mail").payload("2").build(),
        task("mail").dedupe_key("k").payload("3").build(),
        task("print").dedupe_key("k").payload("4").build(),
    ];
    let expected = written(batch[0].clone(), world.now());
    let made = world.create_all(batch).await.unwrap();
    assert_eq!(made[0], Created::Fresh(expected.clone()));
    assert_eq!(made[2], Created::Deduplicated(expected));
    assert!(matches!((&made[1], &made[3]), (Created::Fresh(_), Created::Fresh(_))));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 3);
}

pub(crate) async fn a_batch_may_mix_new_tasks_and_living_ones(world: World) {
    let living = world.add_all((0..50).map(|i| task("mail").dedupe_key(&i.to_string()))).await;
    let batch = (0..100).map(|i| task("mail").dedupe_key(&i.to_string()).build()).collect();
    let made = world.create_all(batch).await.unwrap();
    for (i, created) in made.into_iter().enumerate() {
        match living.get(i) {
            Some(living) => assert_eq!(deduplicated(created), *living),
            None => drop(fresh(created)),
        }
    }
}

pub(crate) async fn eight_writers_of_one_dedupe_key_make_one_task(world: World) {
    let made = side_by_side(world.eight_nodes().await, |node| async move {
        node.create(task("mail").dedupe_key("k")).await.unwrap()
    })
    .await;
    assert_eq!(made.iter().filter(|created| matches!(created, Created::Fresh(_))).count(), 1);
    let living = world.list(TaskFilter::default()).await;
    assert_eq!(living.len(), 1);
    assert!(made.iter().all(|created| *created.task() == living[0]));
}

pub(crate) async fn racing_batches_that_share_dedupe_keys_all_succeed(world: World) {
    // Some in one order and some in the other, which is how deadlocks are made.
    let nodes: Vec<_> = world.eight_nodes().await.into_iter().enumerate().collect();
    let racing = nodes.into_iter().map(|(i, node)| {
        tokio::spawn(async move {
            let mut batch: Vec<_> = (0..50).map(|key| task("mail").dedupe_key(&key.to_string()).build()).collect();
            if i % 2 == 1 {
                batch.reverse();
            }
            node.create_all(batch).await.unwrap()
        })
    });
    let made = futures::future::join_all(racing).await.into_iter().flat_map(Result::unwrap);
    assert_eq!(made.filter(|created| matches!(created, Created::Fresh(_))).count(), 50);
}

pub(crate) async fn a_key_that_is_freed_in_the_same_moment_is_an_answer_either_way(world: World) {
    let other = world.another_node().await;
    for _ in 0..30 {
        let running = world.running(task("mail").dedupe_key("k")).await;
        let (settled, created) =
            tokio::join!(other.settle_as(&running, completed()), world.create(task("mail").dedupe_key("k")));
        assert_eq!(settled, punctual_domain::store::Settled::Now);
        match created.unwrap() {
            Created::Deduplicated(living) => assert_eq!(living.id, running.id),
            Created::Fresh(task) => drop(world.cancel(task.id).await.unwrap()),
        }
    }
}
