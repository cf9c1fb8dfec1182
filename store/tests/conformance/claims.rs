//! Claiming: what, how much, and in which order.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::id::Epoch;
use punctual_domain::store::{ClaimRequest, Settled, Suspects, Want};
use punctual_domain::task::{NewTask, Settlement, Task, TaskStatus};

use crate::support::*;

fn wants(topics: &[(&str, u32)]) -> Vec<Want> {
    topics.iter().map(|(name, slots)| Want { topic: topic(name), slots: *slots }).collect()
}

/// Tasks that have lost an attempt and are due again.
async fn suspects(world: &World, count: usize, topic: &str) -> Vec<Task> {
    world.add_all((0..count).map(|_| task(topic).priority(10))).await;
    world.claim_up_to(count as u32, topic).await;
    world.advance(TimeDelta::from_std(LEASE).unwrap());
    assert_eq!(world.expire(3, 1000).await.unwrap().freed, count as u64);
    world.list(Default::default()).await.into_iter().filter(|task| task.topic.as_str() == topic).collect()
}

pub(crate) async fn getting_ready_takes_nothing(world: World) {
    let added = world.add(task("mail")).await;
    for _ in 0..2 {
        world.store.warm_up().await;
        assert_eq!(world.read(added.id).await, added);
    }
    let claimed = world.claim_one("mail").await;
    world.store.warm_up().await;
    assert_eq!(world.read(added.id).await, claimed);
    assert_eq!(world.settle_as(&claimed, Settlement::Completed { result: None }).await, Settled::Now);
}

pub(crate) async fn a_claim_makes_the_move_of_the_model(world: World) {
    let added = world.add(task("mail").attempts(2).priority(3)).await;
    world.advance_secs(5);
    let lease = Duration::from_millis(1_234);
    let request = ClaimRequest { lease, ..world.request("mail", 1) };
    let expected = added.claim(world.id, lease, world.now()).unwrap();
    assert_eq!(world.claim(&request).await, Ok(vec![expected.clone()]));
    assert_eq!(world.read(expected.id).await, expected);
}

pub(crate) async fn a_task_that_is_written_claimed_is_as_if_it_had_been_claimed_at_once(world: World) {
    let added = world.add(task("mail").priority(3)).await;
    let expected = added.clone().claim(world.id, LEASE, world.now()).unwrap();
    let new: NewTask = task("mail").priority(3).into();
    let expected = Task { id: new.id, ..expected };
    assert_eq!(world.store.claim_new(new, world.id, LEASE).await, Ok(expected.clone()));
    assert_eq!(world.read(expected.id).await, expected);
    // Nobody else gets it, and it is settled by its epoch like any other.
    assert_eq!(ids(&world.another_node().await.claim_up_to(9, "mail").await), [added.id]);
    assert_eq!(world.settle_as(&expected, Settlement::Completed { result: None }).await, Settled::Now);
    assert_eq!(world.read(expected.id).await.status, TaskStatus::Completed);
}

pub(crate) async fn a_task_that_is_written_claimed_is_freed_when_its_lease_ends(world: World) {
    let claimed = world.store.claim_new(task("mail").into(), world.id, LEASE).await.unwrap();
    world.advance(TimeDelta::from_std(LEASE).unwrap());
    assert_eq!(world.expire(3, 9).await.unwrap().freed, 1);
    let again = world.claim_one("mail").await;
    assert_eq!((again.id, again.epoch, again.lost), (claimed.id, Epoch(2), 2));
}

pub(crate) async fn many_tasks_written_claimed_at_the_same_time_are_all_written(world: World) {
    let writes = (0..50).map(|i| {
        let store = world.store.clone();
        let (node, claimed) = (world.id, i % 2 == 0);
        async move {
            if claimed {
                store.claim_new(task("mail").into(), node, LEASE).await.map(drop)
            } else {
                store.create_tasks(vec![task("mail").into()], None).await.map(drop)
            }
        }
    });
    assert!(futures::future::join_all(writes).await.into_iter().all(|written| written.is_ok()));
    assert_eq!(world.claim_up_to(99, "mail").await.len(), 25);
    assert_eq!(world.list(Default::default()).await.len(), 50);
}

pub(crate) async fn only_due_tasks_are_claimed(world: World) {
    let due = world.add(task("mail").at(world.in_secs(-10))).await;
    let now = world.add(task("mail")).await;
    world.add(task("mail").in_secs(10)).await;
    assert_eq!(ids(&world.claim_up_to(9, "mail").await), [due.id, now.id]);
}

pub(crate) async fn a_task_is_claimed_at_its_instant_and_not_a_microsecond_before(world: World) {
    world.add(task("mail").at(world.in_secs(10))).await;
    world.advance(TimeDelta::seconds(10) - TimeDelta::microseconds(1));
    assert_eq!(world.claim_up_to(1, "mail").await, []);
    world.advance(TimeDelta::microseconds(1));
    world.claim_one("mail").await;
}

pub(crate) async fn a_claimed_task_is_not_claimed_again(world: World) {
    world.running(task("mail")).await;
    assert_eq!(world.another_node().await.claim_up_to(9, "mail").await, []);
    // Not even after its lease: first somebody must free it.
    world.advance_secs(3600);
    assert_eq!(world.claim_up_to(9, "mail").await, []);
}

pub(crate) async fn ended_tasks_are_not_claimed(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        world.ended(task("mail"), status).await;
    }
    assert_eq!(world.claim_up_to(9, "mail").await, []);
}

pub(crate) async fn claims_go_by_priority_then_instant_then_id(world: World) {
    let at = |seconds| world.in_secs(seconds);
    let batch = world
        .add_all([
            task("mail").at(at(-1)),
            task("mail").at(at(-2)),
            task("mail").at(at(-2)),
            task("mail").at(at(-1)).priority(5),
            task("mail").at(at(0)).priority(5),
            task("mail").at(at(-9)).priority(-1),
        ])
        .await;
    let expected: Vec<_> = [3, 4, 1, 2, 0, 5].map(|i: usize| batch[i].id).into();
    let mut claimed = Vec::new();
    for slots in [1, 2, 9] {
        claimed.extend(ids(&world.claim_up_to(slots, "mail").await));
    }
    assert_eq!(claimed, expected);
}

pub(crate) async fn a_claim_answers_tasks_as_they_were_written_whatever_they_hold(world: World) {
    let long = "x".repeat(100_000);
    let added = world
        .add_all([
            task("mail"),
            task("mail").payload("[]"),
            task("mail").payload(" { \"a\" :\n\t\"\\u001e\\u001f\\\"é\" } "),
            task("mail").payload(&format!("\"{long}\"")),
            task("mail").metadata("separators", "\u{1e}\u{1f}").payload(&format!("\"{long}é\"")),
            task("mail").serial_key("one").dedupe_key("two").priority(-3),
        ])
        .await;
    world.add(task("other").payload(&format!("\"{long}\""))).await;
    let expected: Vec<_> = added.iter().map(|task| task.clone().claim(world.id, LEASE, world.now()).unwrap()).collect();
    assert_eq!(world.claim_up_to(9, "mail").await, expected);
    // Of several topics in one claim as well.
    let more = world.add(task("mail").payload(&format!("\"{long}\""))).await;
    let request = ClaimRequest { wants: wants(&[("mail", 5), ("other", 5)]), ..world.request("mail", 5) };
    let claimed = world.claim(&request).await.unwrap();
    assert_eq!(claimed.len(), 2);
    for claimed in claimed {
        assert_eq!(claimed.payload.as_str().len(), long.len() + 2);
        assert_eq!(world.read(claimed.id).await, claimed);
    }
    assert_eq!(world.read(more.id).await.status, TaskStatus::Running);
}

pub(crate) async fn one_claim_answers_in_the_order_of_claims(world: World) {
    let batch = world.add_all((0..200).map(|i| task("mail").at(world.in_secs(-(i * 7 % 13))).priority((i % 5) as i32)));
    let mut expected = batch.await;
    expected.sort_by_key(|task| (-task.priority, task.run_at, task.id));
    assert_eq!(ids(&world.claim_up_to(200, "mail").await), ids(&expected));
}

pub(crate) async fn equal_instants_go_by_id_whatever_the_order_of_writing(world: World) {
    let mut batch: Vec<_> = (0..20).map(|_| task("mail").build()).collect();
    let expected: Vec<_> = batch.iter().map(|new| new.id).collect();
    batch.reverse();
    world.create_all(batch).await.unwrap();
    assert_eq!(ids(&world.claim_up_to(20, "mail").await), expected);
}

pub(crate) async fn a_topic_gets_no_more_than_its_slots(world: World) {
    world.add_all((0..10).map(|_| task("mail"))).await;
    world.add_all((0..10).map(|_| task("print"))).await;
    let request = ClaimRequest { wants: wants(&[("mail", 3), ("print", 4)]), ..world.request("mail", 0) };
    let claimed = world.claim(&request).await.unwrap();
    let of = |topic| claimed.iter().filter(|task| task.topic.as_str() == topic).count();
    assert_eq!((claimed.len(), of("mail"), of("print")), (7, 3, 4));
}

pub(crate) async fn a_full_topic_does_not_starve_another(world: World) {
    world.add_all((0..1000).map(|_| task("mail").priority(100).at(world.in_secs(-60)))).await;
    let small = world.add_all((0..3).map(|_| task("print").priority(-100))).await;
    let request = ClaimRequest { wants: wants(&[("mail", 1), ("print", 5)]), ..world.request("mail", 0) };
    let claimed = world.claim(&request).await.unwrap();
    assert_eq!(claimed.len(), 4);
    assert!(small.iter().all(|task| ids(&claimed).contains(&task.id)));
}

pub(crate) async fn topics_that_are_not_wanted_are_left_alone(world: World) {
    world.add_all(["mai", "mail.fast", "Mail", "mail_", "m"].map(task)).await;
    assert_eq!(world.claim_up_to(9, "mail").await, []);
}

pub(crate) async fn no_slots_no_wants_and_unknown_topics_claim_nothing(world: World) {
    world.add(task("mail")).await;
    assert_eq!(world.claim_up_to(0, "mail").await, []);
    assert_eq!(world.claim_up_to(9, "nobody.knows").await, []);
    let request = ClaimRequest { wants: vec![], ..world.request("mail", 1) };
    assert_eq!(world.claim(&request).await, Ok(vec![]));
}

pub(crate) async fn one_claim_serves_three_hundred_topics(world: World) {
    let names: Vec<_> = (0..300).map(|i| format!("topic.{i}")).collect();
    world.add_all(names.iter().flat_map(|name| [task(name), task(name)])).await;
    let slots: Vec<_> = names.iter().map(|name| (name.as_str(), 1)).collect();
    let request = ClaimRequest { wants: wants(&slots), ..world.request("mail", 0) };
    let mut topics: Vec<_> =
        world.claim(&request).await.unwrap().into_iter().map(|task| task.topic.to_string()).collect();
    topics.sort();
    topics.dedup();
    assert_eq!(topics.len(), 300);
}

pub(crate) async fn epochs_only_grow(world: World) {
    let mut claimed = world.running(task("mail")).await;
    for (epoch, settlement) in [(1, retried(0)), (2, snoozed(0)), (3, punctual_domain::task::Settlement::HandedBack)] {
        assert_eq!(claimed.epoch, Epoch(epoch));
        world.settle_now(&claimed, settlement).await;
        claimed = world.claim_one("mail").await;
    }
    world.advance_secs(60);
    world.expire(3, 10).await.unwrap();
    assert_eq!(world.claim_one("mail").await.epoch, Epoch(5));
}

pub(crate) async fn suspects_are_claimed_as_any_other_where_they_may(world: World) {
    suspects(&world, 3, "mail").await;
    assert_eq!(world.claim_up_to(9, "mail").await.len(), 3);
}

pub(crate) async fn suspects_are_limited_and_the_others_take_their_slots(world: World) {
    suspects(&world, 5, "mail").await;
    let healthy = world.add_all((0..3).map(|_| task("mail"))).await;
    let request = ClaimRequest { suspects: Suspects::AtMost(0), ..world.request("mail", 2) };
    assert_eq!(ids(&world.claim(&request).await.unwrap()), ids(&healthy[..2]));
    let request = ClaimRequest { suspects: Suspects::AtMost(2), ..world.request("mail", 9) };
    let claimed = world.claim(&request).await.unwrap();
    assert_eq!(claimed.len(), 3);
    // A claim counts the present attempt as possibly lost, so a suspect has at least two.
    assert_eq!(claimed.iter().filter(|task| task.lost >= 2).count(), 2);
}

pub(crate) async fn suspects_are_limited_over_all_topics(world: World) {
    suspects(&world, 2, "mail").await;
    suspects(&world, 2, "print").await;
    let request = ClaimRequest {
        suspects: Suspects::AtMost(1),
        wants: wants(&[("mail", 5), ("print", 5)]),
        ..world.request("mail", 0)
    };
    assert_eq!(world.claim(&request).await.unwrap().len(), 1);
}

pub(crate) async fn a_suspect_does_not_overtake_a_task_of_higher_priority(world: World) {
    let suspect = suspects(&world, 1, "mail").await.remove(0);
    let higher = world.add(task("mail").priority(suspect.priority + 1)).await;
    let lower = world.add(task("mail").priority(suspect.priority - 1)).await;
    for expected in [higher, suspect, lower] {
        let request = ClaimRequest { suspects: Suspects::AtMost(1), ..world.request("mail", 1) };
        assert_eq!(ids(&world.claim(&request).await.unwrap()), [expected.id]);
    }
}

pub(crate) async fn due_topics_are_named_in_order_and_in_pages(world: World) {
    world.add_all(["c", "a.b", "a", "b", "a"].map(task)).await;
    world.add(task("later").in_secs(10)).await;
    world.running(task("running")).await;
    let named = |topics: Vec<punctual_domain::topic::Topic>| -> Vec<String> {
        topics.iter().map(ToString::to_string).collect()
    };
    assert_eq!(named(world.due_topics(None, 9).await.unwrap()), ["a", "a.b", "b", "c"]);
    assert_eq!(named(world.due_topics(None, 2).await.unwrap()), ["a", "a.b"]);
    assert_eq!(named(world.due_topics(Some(&topic("a.b")), 9).await.unwrap()), ["b", "c"]);
    assert_eq!(named(world.due_topics(Some(&topic("c")), 9).await.unwrap()), [""; 0]);
    world.advance_secs(10);
    assert_eq!(named(world.due_topics(Some(&topic("c")), 9).await.unwrap()), ["later"]);
}

pub(crate) async fn the_next_due_instant_is_the_earliest_of_a_pending_task_after_the_one_given(world: World) {
    let long_ago = world.in_secs(-9999);
    assert_eq!(world.next_due_at(long_ago).await, Ok(None));
    let past = world.add(task("print").at(world.in_secs(-5))).await.run_at;
    let later = world.add(task("mail").in_secs(60)).await;
    assert_eq!(world.next_due_at(long_ago).await, Ok(Some(past)));
    assert_eq!(world.next_due_at(past - TimeDelta::microseconds(1)).await, Ok(Some(past)));
    assert_eq!(world.next_due_at(past).await, Ok(Some(later.run_at)));
    assert_eq!(world.next_due_at(later.run_at).await, Ok(None));

    let running = world.claim_one("print").await;
    assert_eq!(world.next_due_at(long_ago).await, Ok(Some(later.run_at)));
    let waits = world.settle_now(&running, retried(7)).await;
    assert_eq!(world.next_due_at(world.now()).await, Ok(Some(waits.run_at)));
    world.cancel(waits.id).await.unwrap();
    world.cancel(later.id).await.unwrap();
    assert_eq!(world.next_due_at(long_ago).await, Ok(None));
}
