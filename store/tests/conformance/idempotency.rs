//! `Idempotency-Key`: a call that comes again gets its first answer again.

use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use punctual_domain::store::{Answer, Created, Creation, Remember, StoreError, TaskFilter};
use punctual_domain::task::NewTask;

use crate::support::*;

const BODY: &str = "{ \"id\" : 1.0,\n\t\"é\":\"🎉 '\\\"\" }";

fn answer() -> Answer {
    Answer { status: 201, body: BODY.into() }
}

/// A call whose answer is always the same.
fn remember(owner: &str, key: &str, fingerprint: &str) -> Option<Remember> {
    Some(Remember {
        owner: owner.into(),
        key: key.into(),
        fingerprint: fingerprint.into(),
        answer: Box::new(|_| answer()),
    })
}

fn mail() -> Vec<NewTask> {
    vec![task("mail").build()]
}

async fn made(world: &World, tasks: Vec<NewTask>, remember: Option<Remember>) -> Vec<Created> {
    match world.create_tasks(tasks, remember).await.unwrap() {
        Creation::Made(made) => made,
        Creation::Replayed(answer) => panic!("replayed {answer:?}"),
    }
}

pub(crate) async fn a_replay_gets_the_first_answer_word_for_word(world: World) {
    made(&world, mail(), remember("me", "k", "f")).await;
    for _ in 0..2 {
        let never = Remember { answer: Box::new(|_| panic!("asked twice")), ..remember("me", "k", "f").unwrap() };
        assert_eq!(world.create_tasks(mail(), Some(never)).await, Ok(Creation::Replayed(answer())));
    }
    assert_eq!(world.list(TaskFilter::default()).await.len(), 1);
}

pub(crate) async fn the_answer_of_an_earlier_call_can_be_looked_up(world: World) {
    assert_eq!(world.remembered("me", "k", "f").await, Ok(None));
    made(&world, mail(), remember("me", "k", "f")).await;
    assert_eq!(world.remembered("me", "k", "f").await, Ok(Some(answer())));
    assert_eq!(world.remembered("me", "k", "g").await, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(world.remembered("you", "k", "f").await, Ok(None));
    world.advance(TimeDelta::hours(24));
    assert_eq!(world.remembered("me", "k", "f").await, Ok(None));
}

pub(crate) async fn the_answer_is_written_from_the_tasks_that_were_made(world: World) {
    let living = world.add(task("mail").dedupe_key("k")).await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let notes = seen.clone();
    let remember = Remember {
        answer: Box::new(move |created| {
            notes.lock().unwrap().extend_from_slice(created);
            answer()
        }),
        ..remember("me", "k", "f").unwrap()
    };
    let batch = vec![task("mail").payload("1").build(), task("mail").dedupe_key("k").build()];
    let made = made(&world, batch, Some(remember)).await;
    assert_eq!(*seen.lock().unwrap(), made);
    assert_eq!(made[1], Created::Deduplicated(living));
}

pub(crate) async fn another_body_under_the_same_key_is_refused(world: World) {
    made(&world, mail(), remember("me", "k", "f")).await;
    let other = world.create_tasks(mail(), remember("me", "k", "g")).await;
    assert_eq!(other, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 1);
    // The first answer is still there.
    assert_eq!(world.create_tasks(mail(), remember("me", "k", "f")).await, Ok(Creation::Replayed(answer())));
}

pub(crate) async fn an_idempotency_key_belongs_to_its_owner(world: World) {
    for owner in ["", "me", "you"] {
        made(&world, mail(), remember(owner, "k", owner)).await;
    }
    made(&world, mail(), remember("me", "K", "other key")).await;
    assert_eq!(world.list(TaskFilter::default()).await.len(), 4);
}

pub(crate) async fn an_answer_is_kept_for_24_hours(world: World) {
    made(&world, mail(), remember("me", "k", "f")).await;
    world.advance(TimeDelta::hours(24) - TimeDelta::microseconds(1));
    world.prune(std::time::Duration::ZERO, 100).await.unwrap();
    assert_eq!(world.create_tasks(mail(), remember("me", "k", "f")).await, Ok(Creation::Replayed(answer())));

    world.advance(TimeDelta::seconds(1));
    made(&world, mail(), remember("me", "k", "another body")).await;
    // The second answer is kept in its turn.
    world.advance(TimeDelta::hours(23));
    let again = world.create_tasks(mail(), remember("me", "k", "another body")).await;
    assert_eq!(again, Ok(Creation::Replayed(answer())));
}

pub(crate) async fn a_call_that_failed_is_not_remembered(world: World) {
    world.add(task("mail").client_request_id("c")).await;
    let used = vec![task("mail").client_request_id("c").build()];
    let refused = world.create_tasks(used, remember("me", "k", "f")).await;
    assert_eq!(refused, Err(StoreError::ClientRequestIdInUse("c".into())));
    made(&world, mail(), remember("me", "k", "another body")).await;
}

pub(crate) async fn a_replay_does_not_trip_over_its_own_client_request_id(world: World) {
    let batch = || vec![task("mail").client_request_id("c").build()];
    made(&world, batch(), remember("me", "k", "f")).await;
    assert_eq!(world.create_tasks(batch(), remember("me", "k", "f")).await, Ok(Creation::Replayed(answer())));
}

pub(crate) async fn eight_calls_under_one_key_make_one_task(world: World) {
    let answers = side_by_side(world.eight_nodes().await, |node| async move {
        node.create_tasks(mail(), remember("me", "k", "f")).await.unwrap()
    })
    .await;
    assert_eq!(answers.iter().filter(|creation| matches!(creation, Creation::Made(_))).count(), 1);
    assert_eq!(answers.iter().filter(|creation| **creation == Creation::Replayed(answer())).count(), 7);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 1);
}

pub(crate) async fn eight_bodies_under_one_key_make_one_task(world: World) {
    let nodes = world.eight_nodes().await;
    let bodies: Vec<_> = nodes.iter().map(|node| node.id.to_string()).collect();
    let answers = side_by_side(nodes, |node| async move {
        node.create_tasks(mail(), remember("me", "k", &node.id.to_string())).await
    })
    .await;
    let made = answers.iter().filter(|creation| matches!(creation, Ok(Creation::Made(_)))).count();
    let refused = answers.iter().filter(|creation| **creation == Err(StoreError::IdempotencyKeyReused)).count();
    assert_eq!((made, refused), (1, bodies.len() - 1));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 1);
}

pub(crate) async fn an_answer_outlives_a_restart(world: World) {
    made(&world, mail(), remember("me", "k", "f")).await;
    let world = world.reopen().await;
    assert_eq!(world.create_tasks(mail(), remember("me", "k", "f")).await, Ok(Creation::Replayed(answer())));
}
