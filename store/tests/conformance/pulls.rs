//! Claims of workers in any language: the topic's bounds hold on all nodes together.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::store::{
    Answer, Extension, PendingTopic, PullRequest, PullTopic, Pulled, Remember, Reply, StoreError,
};
use punctual_domain::task::{AttemptOutcome, Settlement, Task, TaskStatus};

use crate::support::*;

/// A topic without bounds that matter.
fn from(name: &str) -> PullTopic {
    PullTopic { topic: topic(name), concurrency: 1_000, rate_per_second: None }
}

fn request(node: &NodeStore, topics: &[PullTopic], max: u32) -> PullRequest {
    PullRequest { node: node.id, lease_seconds: 30, topics: topics.to_vec(), max, max_bytes: u64::MAX }
}

async fn pull(node: &NodeStore, topics: &[PullTopic], max: u32) -> Pulled {
    node.pull(&request(node, topics, max), None).await.unwrap().into_made().unwrap()
}

async fn pull_tasks(node: &NodeStore, topics: &[PullTopic], max: u32) -> Vec<Task> {
    pull(node, topics, max).await.tasks
}

fn remember(key: &str, fingerprint: &str) -> Remember<[Task]> {
    let answer = |tasks: &[Task]| {
        let ids: Vec<_> = tasks.iter().map(|task| task.id.to_string()).collect();
        Answer { status: 200, body: ids.join(" ") }
    };
    Remember { owner: "me".into(), key: key.into(), fingerprint: fingerprint.into(), answer: Box::new(answer) }
}

pub(crate) async fn a_workers_claim_is_a_claim_like_any_other(world: World) {
    let written = world.add(task("mail").payload("[1.0]").owner("me").attempts(3)).await;
    world.add(task("other")).await;
    world.add(task("mail").in_secs(60)).await;
    let pulled = pull_tasks(&world, &[from("mail")], 10).await;
    let expected = written.claim(world.id, Duration::from_secs(30), world.now()).unwrap();
    assert_eq!(pulled, std::slice::from_ref(&expected));
    assert_eq!(world.read(expected.id).await, expected);
    assert!(pull_tasks(&world, &[from("mail")], 10).await.is_empty());
    let ended = world.settle_now(&expected, completed()).await;
    assert_eq!((ended.status, ended.lost), (TaskStatus::Completed, 0));
    assert_eq!(world.attempts(expected.id).await[0].node_id, world.id);
}

pub(crate) async fn tasks_come_in_the_order_of_claims_over_all_topics(world: World) {
    let mut expected = Vec::new();
    for (name, priority) in [("a", 0), ("b", 0), ("a", 5), ("b", 5), ("c", -5), ("a", 0), ("c", 9)] {
        expected.push(world.add(task(name).priority(priority)).await);
        world.advance(TimeDelta::milliseconds(1));
    }
    expected.sort_by_key(|task| (-task.priority, task.run_at, task.id));
    let topics = [from("a"), from("b"), from("c")];
    let mut pulled = Vec::new();
    for max in [1, 2, 1, 10] {
        pulled.extend(ids(&pull_tasks(&world, &topics, max).await));
    }
    assert_eq!(pulled, ids(&expected));
}

pub(crate) async fn no_more_run_than_the_topics_concurrency_on_all_nodes(world: World) {
    let other = world.another_node().await;
    world.add_all((0..10).map(|_| task("mail"))).await;
    world.add_all((0..10).map(|_| task("free"))).await;
    let few = PullTopic { concurrency: 3, ..from("mail") };
    assert_eq!(pull_tasks(&world, std::slice::from_ref(&few), 2).await.len(), 2);
    assert_eq!(pull_tasks(&other, std::slice::from_ref(&few), 10).await.len(), 1);
    assert!(pull_tasks(&world, std::slice::from_ref(&few), 10).await.is_empty());
    // A full topic does not hide another.
    let both = pull_tasks(&other, &[few, from("free")], 4).await;
    assert!(both.len() == 4 && both.iter().all(|task| task.topic == topic("free")), "{both:?}");
    assert!(pull_tasks(&world, &[PullTopic { concurrency: 0, ..from("mail") }], 1).await.is_empty());
}

pub(crate) async fn eight_nodes_that_pull_at_once_share_the_concurrency(world: World) {
    world.add_all((0..100).map(|_| task("mail"))).await;
    for _ in 0..3 {
        let pulled: Vec<Task> = side_by_side(world.eight_nodes().await, |node| async move {
            let mut pulled = Vec::new();
            for _ in 0..4 {
                pulled.extend(pull_tasks(&node, &[PullTopic { concurrency: 7, ..from("mail") }], 2).await);
            }
            pulled
        })
        .await
        .concat();
        let mut seen = ids(&pulled);
        seen.sort_unstable();
        seen.dedup();
        assert_eq!((pulled.len(), seen.len()), (7, 7), "no more, no fewer, none twice");
        for task in &pulled {
            world.settle_now(task, completed()).await;
        }
    }
}

pub(crate) async fn a_task_that_ends_or_waits_again_makes_room(world: World) {
    world.add_all((0..10).map(|_| task("mail").attempts(5))).await;
    let one = [PullTopic { concurrency: 1, ..from("mail") }];
    let settlements =
        [completed(), failed("x"), retried(60), snoozed(60), Settlement::HandedBack, Settlement::Cancelled];
    for settlement in settlements {
        let pulled = pull_tasks(&world, &one, 5).await;
        assert_eq!(pulled.len(), 1, "before {settlement:?}");
        assert!(pull_tasks(&world, &one, 5).await.is_empty());
        world.settle_now(&pulled[0], settlement).await;
    }
    let pulled = pull_tasks(&world, &one, 5).await;
    world.cancel(pulled[0].id).await.unwrap();
    assert_eq!(pull_tasks(&world, &one, 5).await.len(), 1);
}

pub(crate) async fn an_expired_lease_makes_room_and_counts_as_lost(world: World) {
    world.add(task("mail")).await;
    let one = [PullTopic { concurrency: 1, ..from("mail") }];
    let first = pull_tasks(&world, &one, 5).await.remove(0);
    world.advance_secs(30);
    assert!(pull_tasks(&world, &one, 5).await.is_empty(), "it is held until it was freed");
    assert_eq!(world.expire(3, 10).await.unwrap().freed, 1);
    let second = pull_tasks(&world, &one, 5).await.remove(0);
    assert_eq!((second.epoch.0, second.lost), (first.epoch.0 + 1, 2));
    assert_eq!(world.attempts(first.id).await[0].outcome, Some(AttemptOutcome::Lost));
}

pub(crate) async fn the_third_lost_lease_fails_the_task(world: World) {
    let written = world.add(task("mail")).await;
    for _ in 0..3 {
        assert_eq!(pull_tasks(&world, &[from("mail")], 5).await.len(), 1);
        world.advance_secs(30);
        world.expire(3, 10).await.unwrap();
    }
    let ended = world.read(written.id).await;
    assert_eq!((ended.status, ended.error.as_deref()), (TaskStatus::Failed, Some("node died during attempt")));
}

pub(crate) async fn no_more_begin_than_the_topics_rate_on_all_nodes(world: World) {
    let other = world.another_node().await;
    world.add_all((0..40).map(|_| task("mail"))).await;
    let slow = [PullTopic { rate_per_second: Some(5.0), ..from("mail") }];
    assert_eq!(pull_tasks(&world, &slow, 3).await.len(), 3);
    assert_eq!(pull_tasks(&other, &slow, 10).await.len(), 2);
    assert!(pull_tasks(&world, &slow, 10).await.is_empty());
    world.advance(TimeDelta::milliseconds(400));
    assert_eq!(pull_tasks(&other, &slow, 10).await.len(), 2);
    world.advance_secs(60);
    assert_eq!(pull_tasks(&world, &slow, 10).await.len(), 5, "what was not used is not saved up");
    world.advance_secs(1);
    let pulled = side_by_side(world.eight_nodes().await, |node| async move {
        let slow = PullTopic { rate_per_second: Some(5.0), ..from("mail") };
        pull_tasks(&node, &[slow], 4).await.len()
    })
    .await;
    assert_eq!(pulled.iter().sum::<usize>(), 5);
}

pub(crate) async fn a_rate_says_when_the_next_may_begin(world: World) {
    world.add_all((0..5).map(|_| task("mail"))).await;
    let slow = [PullTopic { rate_per_second: Some(0.5), ..from("mail") }];
    let first = pull(&world, &slow, 5).await;
    let allowed_at = first.allowed_at.unwrap();
    assert!(first.tasks.len() == 1 && allowed_at > world.now() && allowed_at <= world.in_secs(3), "{first:?}");
    let second = pull(&world, &slow, 5).await;
    assert_eq!((second.tasks.len(), second.allowed_at), (0, Some(allowed_at)));
    world.advance(allowed_at - world.now());
    assert_eq!(pull(&world, &slow, 5).await.tasks.len(), 1);
    assert_eq!(pull(&world, &[from("mail")], 1).await.allowed_at, None);
}

pub(crate) async fn a_heartbeat_extends_by_as_long_as_the_claim_said(world: World) {
    world.add(task("mail")).await;
    let request = PullRequest { lease_seconds: 7, ..request(&world, &[from("mail")], 1) };
    let task = world.pull(&request, None).await.unwrap().into_made().unwrap().tasks.remove(0);
    assert_eq!(task.lease.unwrap().expires_at, Some(world.in_secs(7)));
    for _ in 0..3 {
        world.advance_secs(6);
        let held = Extension { task_id: task.id, epoch: task.epoch };
        assert_eq!(world.extend_pulled(held).await, Ok(Some(world.in_secs(7))));
    }
    assert_eq!(world.read(task.id).await.lease.unwrap().expires_at, Some(world.in_secs(7)));
}

pub(crate) async fn a_nodes_lease_can_be_handed_to_a_worker(world: World) {
    let running = world.running(task("hook")).await;
    let held = Extension { task_id: running.id, epoch: running.epoch };
    assert_eq!(world.hand_to_worker(held, 600).await, Ok(Some(world.in_secs(600))));
    world.advance_secs(500);
    assert_eq!(world.extend_pulled(held).await, Ok(Some(world.in_secs(600))));
    world.settle_now(&running, retried(60)).await;
    // The next attempt is a node's again.
    world.advance_secs(3600);
    let again = world.claim_one("hook").await;
    let held_again = Extension { task_id: again.id, epoch: again.epoch };
    assert_eq!(world.extend_pulled(held_again).await, Ok(None));
    assert_eq!(world.hand_to_worker(held, 600).await, Ok(None));
    world.advance_secs(31);
    assert_eq!(world.hand_to_worker(held_again, 600).await, Ok(None));
}

pub(crate) async fn a_lease_that_ran_out_or_belongs_to_a_node_is_not_extended_so(world: World) {
    let of_node = world.running(task("node")).await;
    world.add(task("mail")).await;
    let pulled = pull_tasks(&world, &[from("mail")], 1).await.remove(0);
    let held = |task: &Task| Extension { task_id: task.id, epoch: task.epoch };
    assert_eq!(world.extend_pulled(held(&of_node)).await, Ok(None));
    let mut other_epoch = held(&pulled);
    other_epoch.epoch.0 += 1;
    assert_eq!(world.extend_pulled(other_epoch).await, Ok(None));
    world.advance_secs(30);
    assert_eq!(world.extend_pulled(held(&pulled)).await, Ok(None));
    // Nobody took over: it can still be settled.
    world.settle_now(&pulled, completed()).await;
}

pub(crate) async fn payloads_bound_a_claim_but_for_a_single_one(world: World) {
    let large = format!("\"{}\"", "é".repeat(500));
    for _ in 0..5 {
        world.add(task("mail").payload(&large)).await;
        world.advance(TimeDelta::milliseconds(1));
    }
    let bytes = large.len() as u64;
    for (max_bytes, expected) in [(2 * bytes, 2), (2 * bytes - 1, 1), (1, 1), (0, 1)] {
        let request = PullRequest { max_bytes, ..request(&world, &[from("mail")], 10) };
        let pulled = world.pull(&request, None).await.unwrap().into_made().unwrap().tasks;
        assert_eq!(pulled.len(), expected, "{max_bytes} bytes");
    }
}

pub(crate) async fn tasks_of_one_serial_key_are_pulled_one_at_a_time(world: World) {
    let first = world.add(task("mail").serial_key("k")).await;
    let second = world.add(task("mail").serial_key("k").priority(9)).await;
    let free = world.add(task("mail")).await;
    let pulled = pull_tasks(&world, &[from("mail")], 10).await;
    assert_eq!(ids(&pulled), [first.id, free.id]);
    assert!(pull_tasks(&world, &[from("mail")], 10).await.is_empty());
    world.settle_now(&pulled[0], completed()).await;
    assert_eq!(ids(&pull_tasks(&world, &[from("mail")], 10).await), [second.id]);
}

pub(crate) async fn tasks_that_lost_an_attempt_are_pulled_with_the_others(world: World) {
    world.add_all((0..3).map(|_| task("mail"))).await;
    pull_tasks(&world, &[from("mail")], 10).await;
    world.advance_secs(30);
    assert_eq!(world.expire(3, 10).await.unwrap().freed, 3);
    world.add(task("mail")).await;
    assert_eq!(pull_tasks(&world, &[from("mail")], 10).await.len(), 4);
}

pub(crate) async fn a_keyed_claim_is_answered_again_and_claims_once(world: World) {
    world.add_all((0..3).map(|_| task("mail"))).await;
    let request = request(&world, &[from("mail")], 1);
    let first = world.pull(&request, Some(remember("k", "f"))).await.unwrap().into_made().unwrap();
    let body = first.tasks[0].id.to_string();
    let again = world.pull(&request, Some(remember("k", "f"))).await.unwrap();
    assert_eq!(again, Reply::Replayed(Answer { status: 200, body }));
    let other = world.pull(&request, Some(remember("k", "g"))).await;
    assert_eq!(other, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(pull_tasks(&world, &[from("mail")], 10).await.len(), 2);
}

pub(crate) async fn a_keyed_claim_of_nothing_is_not_remembered(world: World) {
    let request = request(&world, &[from("mail")], 1);
    let nothing = world.pull(&request, Some(remember("k", "f"))).await.unwrap();
    assert_eq!(nothing, Reply::Made(Pulled::default()));
    assert_eq!(world.remembered("me", "k", "f").await, Ok(None));
    world.add(task("mail")).await;
    assert_eq!(world.pull(&request, Some(remember("k", "f"))).await.unwrap().into_made().unwrap().tasks.len(), 1);
}

pub(crate) async fn an_answer_of_its_own_is_kept(world: World) {
    let remember = |fingerprint: &str, body: &'static str| Remember::<()> {
        owner: "me".into(),
        key: "k".into(),
        fingerprint: fingerprint.into(),
        answer: Box::new(move |()| Answer { status: 200, body: body.into() }),
    };
    assert_eq!(world.keep_answer(remember("f", "first")).await, Ok(Reply::Made(())));
    let first = Answer { status: 200, body: "first".into() };
    assert_eq!(world.keep_answer(remember("f", "second")).await, Ok(Reply::Replayed(first.clone())));
    assert_eq!(world.keep_answer(remember("g", "third")).await, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(world.remembered("me", "k", "f").await, Ok(Some(first)));
}

pub(crate) async fn pending_topics_are_found_by_name_and_by_prefix(world: World) {
    for (name, priority, seconds) in [
        ("a", 0, 0),
        ("a.b", 0, 60),
        ("a.b", 3, 30),
        ("a.b.c", 0, 0),
        ("a.b.c", 7, 0),
        ("a.b.c", 1, 90),
        ("a-b", 0, 0),
        ("z", 0, 5),
    ] {
        world.add(task(name).priority(priority).in_secs(seconds)).await;
    }
    world.running(task("a.running")).await;
    let found = async |patterns: &[&str]| {
        let patterns: Vec<_> = patterns.iter().map(|pattern| pattern.parse().unwrap()).collect();
        world.pending_topics(&patterns, 100).await.unwrap()
    };
    let pending = |name: &str, due, next: Option<i64>| PendingTopic {
        topic: topic(name),
        due,
        next_due_at: next.map(|seconds| world.in_secs(seconds)),
    };
    let (a, ab, abc) = (pending("a", 1, None), pending("a.b", 0, Some(30)), pending("a.b.c", 2, Some(90)));
    assert_eq!(found(&["a.*"]).await, [ab.clone(), abc.clone()]);
    assert_eq!(found(&["a"]).await, std::slice::from_ref(&a));
    assert_eq!(found(&["a.b.*", "a", "a.*", "nobody", "no.*"]).await, [a, ab, abc]);
    assert_eq!(found(&["z", "a.running"]).await, [pending("z", 0, Some(5))]);
    assert_eq!(found(&[]).await, []);
    world.advance_secs(5);
    assert_eq!(found(&["z"]).await, [pending("z", 1, None)]);
}

pub(crate) async fn pending_topics_are_cut_at_the_limit(world: World) {
    world.add_all((0..9).map(|n| task(&format!("t.x{n}")))).await;
    let found = world.pending_topics(&["t.*".parse().unwrap(), "u".parse().unwrap()], 4).await.unwrap();
    let names: Vec<_> = found.iter().map(|pending| pending.topic.as_str()).collect();
    assert_eq!(names, ["t.x0", "t.x1", "t.x2", "t.x3"]);
}
