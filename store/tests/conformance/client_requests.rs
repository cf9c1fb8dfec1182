//! `clientRequestId`: never makes two tasks or schedules.

use chrono::TimeDelta;
use punctual_domain::store::{StoreError, TaskFilter};
use punctual_domain::task::TaskStatus;
use std::time::Duration;

use crate::support::*;

fn in_use(id: &str) -> StoreError {
    StoreError::ClientRequestIdInUse(id.into())
}

pub(crate) async fn a_client_request_id_makes_one_task(world: World) {
    let first = world.add(task("mail").client_request_id("c")).await;
    assert_eq!(world.create(task("print").client_request_id("c")).await, Err(in_use("c")));
    assert_eq!(world.list(TaskFilter::default()).await, [first]);
}

pub(crate) async fn client_request_ids_are_compared_letter_by_letter(world: World) {
    for id in ["c", "C", "c ", "é", "e\u{301}"] {
        world.add(task("mail").client_request_id(id)).await;
    }
}

pub(crate) async fn a_client_request_id_twice_in_a_batch_is_refused(world: World) {
    let batch = ["a", "b", "a"].map(|id| task("mail").client_request_id(id).build());
    assert_eq!(world.create_all(batch.into()).await, Err(in_use("a")));
    assert_eq!(world.list(TaskFilter::default()).await, []);
    // What was refused used nothing up.
    world.add(task("mail").client_request_id("a")).await;
    world.add(task("mail").client_request_id("b")).await;
}

pub(crate) async fn a_client_request_id_stays_used_after_the_task_ended(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        world.ended(task("mail").client_request_id(status.as_str()), status).await;
        let again = world.create(task("mail").client_request_id(status.as_str())).await;
        assert_eq!(again, Err(in_use(status.as_str())));
    }
}

pub(crate) async fn a_client_request_id_stays_used_after_retention(world: World) {
    let ended = world.ended(task("mail").client_request_id("c"), TaskStatus::Completed).await;
    world.advance(TimeDelta::days(2));
    world.prune(Duration::from_secs(86_400), 100).await.unwrap();
    assert_eq!(world.task(ended.id).await, Ok(None));
    assert_eq!(world.create(task("mail").client_request_id("c")).await, Err(in_use("c")));
}

pub(crate) async fn a_schedule_cannot_use_the_client_request_id_of_a_task(world: World) {
    world.add(task("mail").client_request_id("c")).await;
    let mut schedule = world.unwritten("nightly");
    schedule.client_request_id = Some("c".into());
    assert_eq!(world.create_schedule(&schedule).await, Err(in_use("c")));
    assert_eq!(world.schedule(schedule.id).await, Ok(None));
    assert_eq!(world.schedule_by_name("nightly").await, Ok(None));
}

pub(crate) async fn a_task_cannot_use_the_client_request_id_of_a_schedule(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.client_request_id = Some("c".into());
    world.create_schedule(&schedule).await.unwrap();
    assert_eq!(world.create(task("mail").client_request_id("c")).await, Err(in_use("c")));
    // Not even once the schedule is gone.
    world.delete_schedule(schedule.id).await.unwrap();
    assert_eq!(world.create(task("mail").client_request_id("c")).await, Err(in_use("c")));
}

pub(crate) async fn two_schedules_cannot_share_a_client_request_id(world: World) {
    let mut schedules = [world.unwritten("one"), world.unwritten("two")];
    for schedule in &mut schedules {
        schedule.client_request_id = Some("c".into());
    }
    assert_eq!(world.create_schedule(&schedules[0]).await, Ok(schedules[0].clone()));
    assert_eq!(world.create_schedule(&schedules[1]).await, Err(in_use("c")));
}

pub(crate) async fn eight_writers_of_one_client_request_id_make_one_task(world: World) {
    let made = side_by_side(world.eight_nodes().await, |node| async move {
        node.create(task("mail").client_request_id("c")).await
    })
    .await;
    assert_eq!(made.iter().filter(|created| created.is_ok()).count(), 1);
    assert!(made.iter().flat_map(|created| created.as_ref().err()).all(|error| *error == in_use("c")));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 1);
}

pub(crate) async fn racing_batches_that_share_client_request_ids_make_one_of_them(world: World) {
    // Some in one order and some in the other, which is how deadlocks are made.
    let racing = world.eight_nodes().await.into_iter().enumerate().map(|(i, node)| {
        tokio::spawn(async move {
            let mut batch: Vec<_> = (0..50).map(|id| task("mail").client_request_id(&id.to_string()).build()).collect();
            if i % 2 == 1 {
                batch.reverse();
            }
            node.create_all(batch).await
        })
    });
    let made: Vec<_> = futures::future::join_all(racing).await.into_iter().map(Result::unwrap).collect();
    assert_eq!(made.iter().filter(|made| made.is_ok()).count(), 1);
    for error in made.iter().flat_map(|made| made.as_ref().err()) {
        assert!(matches!(error, StoreError::ClientRequestIdInUse(_)), "{error:?}");
    }
    assert_eq!(world.list(TaskFilter::default()).await.len(), 50);
}
