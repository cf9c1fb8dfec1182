//! `serialKey`: at most one running per topic and key, in order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use punctual_domain::task::{Settlement, TaskStatus};

use crate::support::*;

pub(crate) async fn one_task_of_a_serial_key_runs_at_a_time(world: World) {
    let batch = world.add_all((0..3).map(|_| task("mail").serial_key("k"))).await;
    for expected in &batch {
        let claimed = world.claim_one("mail").await;
        assert_eq!(claimed.id, expected.id);
        assert_eq!(world.claim_up_to(9, "mail").await, []);
        world.settle_now(&claimed, completed()).await;
    }
}

pub(crate) async fn tasks_of_a_serial_key_go_in_the_order_they_were_due(world: World) {
    let second = world.add(task("mail").serial_key("k").at(world.in_secs(-1))).await;
    let first = world.add(task("mail").serial_key("k").at(world.in_secs(-2))).await;
    let third = world.add(task("mail").serial_key("k").at(world.in_secs(-1))).await;
    for expected in [first, second, third] {
        let claimed = world.claim_one("mail").await;
        assert_eq!(claimed.id, expected.id);
        world.settle_now(&claimed, completed()).await;
    }
}

pub(crate) async fn priority_does_not_overtake_within_a_serial_key(world: World) {
    let first = world.add(task("mail").serial_key("k").at(world.in_secs(-2)).priority(-100)).await;
    world.add(task("mail").serial_key("k").at(world.in_secs(-1)).priority(100)).await;
    assert_eq!(world.claim_one("mail").await.id, first.id);
}

pub(crate) async fn a_retry_keeps_its_place_in_its_serial_key(world: World) {
    let first = world.add(task("mail").serial_key("k")).await;
    world.add(task("mail").serial_key("k").in_secs(1)).await;
    let claimed = world.claim_one("mail").await;
    world.settle_now(&claimed, retried(60)).await;
    world.advance_secs(59);
    assert_eq!(world.claim_up_to(9, "mail").await, []);
    world.advance_secs(1);
    assert_eq!(world.claim_one("mail").await.id, first.id);
}

pub(crate) async fn a_snooze_a_hand_over_and_a_loss_keep_the_place_too(world: World) {
    let first = world.add(task("mail").serial_key("k")).await;
    world.add(task("mail").serial_key("k").priority(100)).await;
    for settlement in [snoozed(5), Settlement::HandedBack] {
        let claimed = world.claim_one("mail").await;
        world.settle_now(&claimed, settlement).await;
        world.advance_secs(4);
        world.advance_secs(1);
    }
    assert_eq!(world.claim_one("mail").await.id, first.id);
    world.advance_secs(30);
    world.expire(3, 10).await.unwrap();
    assert_eq!(world.claim_one("mail").await.id, first.id);
}

pub(crate) async fn serial_keys_belong_to_their_topic(world: World) {
    world.add(task("mail").serial_key("k")).await;
    world.add(task("print").serial_key("k")).await;
    world.claim_one("mail").await;
    world.claim_one("print").await;
}

pub(crate) async fn different_serial_keys_run_side_by_side(world: World) {
    let batch = (0..20).flat_map(|i| [0, 1].map(|_| task("mail").serial_key(&i.to_string())));
    let batch = world.add_all(batch).await;
    let heads: Vec<_> = ids(batch.iter().step_by(2));
    assert_eq!(ids(&world.claim_up_to(40, "mail").await), heads);
}

pub(crate) async fn every_end_of_the_head_lets_the_next_one_go(world: World) {
    let batch = world.add_all((0..6).map(|_| task("mail").serial_key("k"))).await;
    for settlement in [completed(), failed("no"), Settlement::Cancelled] {
        let claimed = world.claim_one("mail").await;
        world.settle_now(&claimed, settlement).await;
    }
    // The fourth is cancelled while it waits, the fifth while it runs.
    world.cancel(batch[3].id).await.unwrap();
    assert_eq!(world.claim_one("mail").await.id, batch[4].id);
    world.cancel(batch[4].id).await.unwrap();
    assert_eq!(world.claim_one("mail").await.id, batch[5].id);
}

pub(crate) async fn a_head_that_was_lost_too_often_lets_the_next_one_go(world: World) {
    let batch = world.add_all((0..2).map(|_| task("mail").serial_key("k"))).await;
    world.claim_one("mail").await;
    world.advance_secs(30);
    assert_eq!(world.expire(1, 10).await.unwrap().failed, 1);
    assert_eq!(world.claim_one("mail").await.id, batch[1].id);
}

pub(crate) async fn a_blocked_serial_key_does_not_hide_what_is_behind_it(world: World) {
    world.add_all((0..500).map(|_| task("mail").serial_key("k").priority(50).at(world.in_secs(-60)))).await;
    let others = world.add_all((0..2).map(|_| task("mail"))).await;
    // The head takes one slot, the tasks behind it none.
    assert_eq!(world.claim_up_to(1, "mail").await.len(), 1);
    assert_eq!(ids(&world.claim_up_to(2, "mail").await), ids(&others));
}

pub(crate) async fn racing_claimers_never_run_two_of_a_serial_key(world: World) {
    const KEYS: usize = 10;
    const LENGTH: usize = 12;
    let batch = (0..KEYS * LENGTH).map(|i| task("mail").serial_key(&(i % KEYS).to_string()));
    let batch = world.add_all(batch).await;
    let running = Arc::new(Mutex::new(BTreeSet::new()));
    let done = Arc::new(Mutex::new(BTreeMap::<String, Vec<_>>::new()));
    side_by_side(world.eight_nodes().await, |node| {
        let (running, done) = (running.clone(), done.clone());
        async move {
            for round in 0.. {
                assert!(round < 10_000, "no end in sight");
                if done.lock().unwrap().values().map(Vec::len).sum::<usize>() == KEYS * LENGTH {
                    return;
                }
                for task in node.claim_up_to(3, "mail").await {
                    let key = task.serial_key.clone().unwrap();
                    assert!(running.lock().unwrap().insert(key.clone()), "two of {key} run");
                    done.lock().unwrap().entry(key.clone()).or_default().push(task.id);
                    tokio::task::yield_now().await;
                    running.lock().unwrap().remove(&key);
                    node.settle_now(&task, completed()).await;
                }
            }
        }
    })
    .await;
    for (key, order) in done.lock().unwrap().iter() {
        let expected: Vec<_> =
            batch.iter().filter(|task| task.serial_key.as_ref() == Some(key)).map(|task| task.id).collect();
        assert_eq!(*order, expected, "the order of {key}");
    }
    let ended = world.list(Default::default()).await;
    assert!(ended.iter().all(|task| task.status == TaskStatus::Completed));
}
