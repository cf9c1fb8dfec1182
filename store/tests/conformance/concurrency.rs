//! Many nodes at once: nothing is shared, nothing is lost, nothing ends twice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::store::{Bulk, ClaimRequest, Extension, Page, Settled, Settling, TaskFilter, Want};
use punctual_domain::task::{Settlement, Task, TaskStatus};

use crate::support::*;

pub(crate) async fn eight_claimers_share_ten_thousand_tasks_and_never_one(world: World) {
    let added = world.add_all((0..10_000).map(|i| task("mail").priority(i % 3))).await;
    let claimed = side_by_side(world.eight_nodes().await, |node| async move {
        let mut claimed = Vec::new();
        loop {
            let tasks = node.claim_up_to(100, "mail").await;
            if tasks.is_empty() {
                return claimed;
            }
            assert!(tasks.iter().all(|task| task.lease.unwrap().owner == node.id));
            claimed.extend(ids(&tasks));
        }
    })
    .await;
    let mut claimed: Vec<_> = claimed.into_iter().flatten().collect();
    claimed.sort_unstable();
    // Equal lists: each task once, and none forgotten.
    assert!(claimed == ids(&added));
}

pub(crate) async fn racing_claimers_leave_no_due_task_behind(world: World) {
    // As many slots as tasks: between them, one round of all must take everything.
    world.add_all((0..80).map(|_| task("mail"))).await;
    side_by_side(
        world.eight_nodes().await,
        |node| async move { while !node.claim_up_to(10, "mail").await.is_empty() {} },
    )
    .await;
    assert_eq!(world.claim_up_to(80, "mail").await, []);
    assert_eq!(world.counts().await.unwrap().running, 80);
}

pub(crate) async fn claimers_that_want_topics_in_any_order_do_not_block_each_other(world: World) {
    let names: Vec<_> = (0..10).map(|i| format!("topic.{i}")).collect();
    world.add_all(names.iter().flat_map(|name| (0..40).map(move |_| task(name)))).await;
    let claimed = Arc::new(Mutex::new(BTreeSet::new()));
    let nodes = world.eight_nodes().await;
    let racing = nodes.into_iter().enumerate().map(|(i, node)| {
        let (claimed, mut names) = (claimed.clone(), names.clone());
        tokio::spawn(async move {
            names.rotate_left(i);
            if i % 2 == 1 {
                names.reverse();
            }
            let wants = names.iter().map(|name| Want { topic: topic(name), slots: 3 }).collect();
            let request = ClaimRequest { wants, ..node.request("topic.0", 0) };
            loop {
                let tasks = node.claim(&request).await.unwrap();
                if tasks.is_empty() {
                    return;
                }
                for id in ids(&tasks) {
                    assert!(claimed.lock().unwrap().insert(id), "{id} was claimed twice");
                }
            }
        })
    });
    for ended in futures::future::join_all(racing).await {
        ended.unwrap();
    }
    assert_eq!(claimed.lock().unwrap().len(), 400);
}

/// What eight nodes saw while they worked on the same tasks.
#[derive(Default)]
struct Witness {
    claims: BTreeSet<(TaskId, Epoch)>,
    /// How often a task was settled for good.
    ends: BTreeMap<TaskId, u32>,
}

pub(crate) async fn everything_at_once_ends_every_task_once(world: World) {
    const TASKS: usize = 300;
    world
        .add_all((0..TASKS).map(|i| {
            let task = task("mail").priority((i % 3) as i32);
            if i % 4 == 0 { task.serial_key(&(i % 5).to_string()) } else { task }
        }))
        .await;
    let witness = Arc::new(Mutex::new(Witness::default()));
    let nodes = world.eight_nodes().await;
    let racing = nodes.into_iter().enumerate().map(|(i, node)| {
        let (witness, clock) = (witness.clone(), world.clock.clone());
        tokio::spawn(async move {
            let live = TaskFilter { status: vec![TaskStatus::Pending, TaskStatus::Running], ..Default::default() };
            for round in 0.. {
                assert!(round < 10_000, "no end in sight");
                if i == 0 {
                    clock.advance(TimeDelta::seconds(7));
                    node.expire(1000, 50).await.unwrap();
                }
                for task in node.claim_up_to(8, "mail").await {
                    let first_time = witness.lock().unwrap().claims.insert((task.id, task.epoch));
                    assert!(first_time, "{} was claimed twice by epoch {}", task.id, task.epoch);
                    let settlement = match (task.epoch.0 as usize + i + round) % 7 {
                        0 => Settlement::HandedBack,
                        1 => retried(0),
                        2 => failed("no"),
                        // Forgotten: its lease will run out.
                        3 => continue,
                        4 => {
                            assert!(node.cancel(task.id).await.unwrap().status.has_ended());
                            assert_eq!(node.settle_as(&task, completed()).await, Settled::LeaseLost);
                            continue;
                        }
                        _ => completed(),
                    };
                    let ends = settlement.status().has_ended();
                    if node.settle_as(&task, settlement).await == Settled::Now && ends {
                        *witness.lock().unwrap().ends.entry(task.id).or_default() += 1;
                    }
                }
                if node.tasks(&live, Page::first(1)).await.unwrap().is_empty() {
                    return;
                }
            }
        })
    });
    for ended in futures::future::join_all(racing).await {
        ended.unwrap();
    }
    let ended = world.list(TaskFilter::default()).await;
    assert_eq!(ended.len(), TASKS);
    let witness = witness.lock().unwrap();
    for task in ended {
        let settled = u32::from(task.status != TaskStatus::Cancelled);
        assert_eq!(witness.ends.get(&task.id).copied().unwrap_or(0), settled, "{task:?}");
        assert!(task.status.has_ended() && task.lease.is_none());
    }
}

pub(crate) async fn bulk_moves_over_the_same_tasks_all_succeed(world: World) {
    for _ in 0..5 {
        world.add_all((0..100).map(|_| task("mail"))).await;
        let running = world.claim_up_to(100, "mail").await;
        let settlings = |tasks: &[Task]| {
            let settle = |task: &Task| Settling { task_id: task.id, epoch: task.epoch, settlement: completed() };
            tasks.iter().map(settle).collect::<Vec<_>>()
        };
        let there = settlings(&running);
        let back: Vec<_> = there.iter().rev().cloned().collect();
        let held: Vec<_> = running.iter().map(|task| Extension { task_id: task.id, epoch: task.epoch }).collect();
        let nodes = world.eight_nodes().await;
        let all = TaskFilter::default();
        let (there, back, extended, cancelled, expired) = tokio::join!(
            nodes[0].settle(there),
            nodes[1].settle(back),
            nodes[2].extend(&held, LEASE),
            nodes[3].cancel_matching(&all, Bulk::Apply),
            nodes[4].expire(3, 1000),
        );
        extended.unwrap();
        expired.unwrap();
        let now = |settled: Vec<Settled>| settled.iter().filter(|settled| **settled == Settled::Now).count() as u64;
        assert_eq!(now(there.unwrap()) + now(back.unwrap()) + cancelled.unwrap(), 100);
        assert_eq!(world.database.count("punctual_tasks").await, 0);
    }
    assert_eq!(world.database.count("punctual_task_history").await, 500);
}

pub(crate) async fn more_callers_than_connections_wait_their_turn(world: World) {
    let calls = (0..200).map(|_| world.create(task("mail")));
    for created in futures::future::join_all(calls).await {
        fresh(created.unwrap());
    }
    let reads = world.list(TaskFilter::default()).await;
    let reads = futures::future::join_all(reads.iter().map(|task| world.read(task.id))).await;
    assert_eq!(reads.len(), 200);
}

pub(crate) async fn a_caller_that_goes_away_leaves_nothing_half_written(world: World) {
    for round in 0..40 {
        let owner = round.to_string();
        let batch = (0..20).map(|_| task("mail").owner(&owner).build()).collect();
        let call = world.create_all(batch);
        // Dropped after more and more turns: before, between and after its statements.
        let patience = async {
            for _ in 0..1 << (round % 14) {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            made = call => drop(made.unwrap()),
            () = patience => {}
        }
    }
    // The store still answers, and every call was made whole or not at all.
    world.add(task("mail")).await;
    for round in 0..40 {
        let filter = TaskFilter { owner_id: Some(round.to_string()), ..Default::default() };
        let written = world.list(filter).await.len();
        assert!([0, 20].contains(&written), "{written} of round {round}");
    }
}
