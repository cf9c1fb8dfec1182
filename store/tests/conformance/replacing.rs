//! Tasks that take the place of others: rescheduled ones and retries.

use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::store::{Bulk, Retry, StoreError, TaskFilter};
use punctual_domain::task::{NewTask, Task, TaskStatus};

use crate::support::*;

pub(crate) async fn a_rescheduled_task_is_cancelled_and_replaced(world: World) {
    let old = world.add(task("mail").in_secs(60)).await;
    world.advance_secs(2);
    let replacement = task("mail").in_secs(120).payload("2").build();
    let expected = Task { rescheduled_from: Some(old.id), ..written(replacement.clone(), world.now()) };
    assert_eq!(world.reschedule(old.id, replacement).await, Ok(expected.clone()));
    assert_eq!(world.read(expected.id).await, expected);
    assert_eq!(world.read(old.id).await, old.cancel(world.now()).unwrap());
}

pub(crate) async fn a_running_task_can_be_rescheduled(world: World) {
    let running = world.running(task("mail")).await;
    let replacement = world.reschedule(running.id, task("mail").build()).await.unwrap();
    assert_eq!(world.read(running.id).await, running.clone().cancel(world.now()).unwrap());
    assert_eq!(world.attempts(running.id).await.len(), 1);
    assert_eq!(world.settle_as(&running, completed()).await, punctual_domain::store::Settled::LeaseLost);
    assert_eq!(world.claim_one("mail").await.id, replacement.id);
}

pub(crate) async fn the_dedupe_key_moves_to_the_replacement(world: World) {
    let old = world.add(task("mail").dedupe_key("k")).await;
    let replacement = world.reschedule(old.id, task("mail").dedupe_key("k").build()).await.unwrap();
    let second = world.create(task("mail").dedupe_key("k")).await.unwrap();
    assert_eq!(deduplicated(second), replacement);
}

pub(crate) async fn the_dedupe_key_of_a_third_task_is_refused(world: World) {
    let third = world.add(task("mail").dedupe_key("k")).await;
    let old = world.add(task("mail")).await;
    let refused = world.reschedule(old.id, task("mail").dedupe_key("k").build()).await;
    assert_eq!(refused, Err(StoreError::DedupeKeyInUse("k".into())));
    assert_eq!(ids(&world.list(TaskFilter::default()).await), newest_first([&old, &third]));
    assert_eq!(world.read(old.id).await, old);
}

pub(crate) async fn a_used_client_request_id_keeps_a_task_from_being_rescheduled(world: World) {
    let old = world.add(task("mail").client_request_id("c")).await;
    let refused = world.reschedule(old.id, task("mail").client_request_id("c").build()).await;
    assert_eq!(refused, Err(StoreError::ClientRequestIdInUse("c".into())));
    assert_eq!(world.list(TaskFilter::default()).await, [old]);
}

pub(crate) async fn a_replacement_uses_up_its_client_request_id(world: World) {
    let old = world.add(task("mail")).await;
    world.reschedule(old.id, task("mail").client_request_id("c").build()).await.unwrap();
    let again = world.create(task("mail").client_request_id("c")).await;
    assert_eq!(again, Err(StoreError::ClientRequestIdInUse("c".into())));
}

pub(crate) async fn an_ended_task_is_not_rescheduled(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        let ended = world.ended(task("mail"), status).await;
        let refused = world.reschedule(ended.id, task("mail").build()).await;
        assert_eq!(refused, Err(StoreError::AlreadyEnded));
        assert_eq!(world.read(ended.id).await, ended);
    }
    assert_eq!(world.database.count("punctual_tasks").await, 0);
}

pub(crate) async fn an_unknown_task_is_not_rescheduled(world: World) {
    let refused = world.reschedule(TaskId::generate(), task("mail").build()).await;
    assert_eq!(refused, Err(StoreError::NotFound));
    assert_eq!(world.list(TaskFilter::default()).await, []);
}

pub(crate) async fn eight_reschedules_of_one_task_make_one_replacement(world: World) {
    let old = world.add(task("mail").dedupe_key("k")).await.id;
    let answers = side_by_side(world.eight_nodes().await, |node| async move {
        node.reschedule(old, task("mail").dedupe_key("k").build()).await
    })
    .await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    assert!(answers.iter().flat_map(|answer| answer.as_ref().err()).all(|error| *error == StoreError::AlreadyEnded));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 2);
}

pub(crate) async fn a_failed_task_is_retried_by_a_new_one(world: World) {
    let new = task("mail")
        .payload(r#"{"n":1.50}"#)
        .owner("me")
        .dedupe_key("d")
        .serial_key("s")
        .client_request_id("c")
        .of_schedule(ScheduleId::generate(), world.now())
        .priority(7)
        .attempts(2);
    let failed = world.ended(new, TaskStatus::Failed).await;
    world.advance_secs(60);
    let again = fresh(world.retry(failed.id).await.unwrap());
    let like_it = NewTask { id: again.id, retry_of: Some(failed.id), ..NewTask::like(&failed) };
    assert_ne!(again.id, failed.id);
    assert_eq!(again, written(like_it, world.now()));
    assert_eq!(world.read(again.id).await, again);
    assert_eq!(world.read(failed.id).await, failed);
    assert_eq!(world.claim_one("mail").await.id, again.id);
}

pub(crate) async fn the_retries_of_a_task_are_found_wherever_they_are(world: World) {
    let retry = |task: &Task| Retry { id: task.id, status: task.status, created_at: task.created_at };
    let failed = world.ended(task("mail"), TaskStatus::Failed).await;
    world.add(task("mail").in_secs(60)).await;
    assert_eq!(world.retries_of(failed.id, 10).await, Ok(Vec::new()));
    let first = fresh(world.retry(failed.id).await.unwrap());
    let ended = world.claim_one("mail").await;
    let ended = world.settle_now(&ended, completed()).await;
    assert_eq!(ended.id, first.id);
    world.advance_secs(1);
    let second = fresh(world.retry(failed.id).await.unwrap());
    assert_eq!(
        world.retries_of(failed.id, 10).await,
        Ok(vec![retry(&second), retry(&ended)]),
        "ended or not, newest first"
    );
    assert_eq!(world.retries_of(failed.id, 1).await, Ok(vec![retry(&second)]));
    assert_eq!(world.retries_of(second.id, 10).await, Ok(Vec::new()));
}

pub(crate) async fn a_task_that_was_lost_too_often_can_be_retried(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(30);
    world.expire(1, 10).await.unwrap();
    let again = fresh(world.retry(running.id).await.unwrap());
    assert_eq!((again.lost, again.retry_of, again.error), (0, Some(running.id), None));
}

pub(crate) async fn only_failed_tasks_are_retried(world: World) {
    let pending = world.add(task("mail").in_secs(60)).await;
    let running = world.running(task("mail")).await;
    let completed = world.ended(task("print"), TaskStatus::Completed).await;
    let cancelled = world.ended(task("print"), TaskStatus::Cancelled).await;
    for task in [pending, running, completed, cancelled] {
        assert_eq!(world.retry(task.id).await, Err(StoreError::NotFailed), "{:?}", task.status);
    }
    assert_eq!(world.retry(TaskId::generate()).await, Err(StoreError::NotFound));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 4);
}

pub(crate) async fn a_retry_whose_dedupe_key_lives_is_the_living_task(world: World) {
    let failed = world.ended(task("mail").dedupe_key("k"), TaskStatus::Failed).await;
    let living = world.add(task("mail").dedupe_key("k").in_secs(60)).await;
    assert_eq!(deduplicated(world.retry(failed.id).await.unwrap()), living);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 2);
}

pub(crate) async fn a_bulk_retry_takes_the_failed_ones_that_match(world: World) {
    let mut failed = Vec::new();
    for _ in 0..3 {
        failed.push(world.ended(task("mail").owner("me"), TaskStatus::Failed).await);
    }
    world.ended(task("mail").owner("you"), TaskStatus::Failed).await;
    world.ended(task("mail").owner("me"), TaskStatus::Completed).await;
    world.ended(task("mail").owner("me"), TaskStatus::Cancelled).await;
    let filter = TaskFilter { owner_id: Some("me".into()), ..Default::default() };
    assert_eq!(world.retry_matching(&filter, Bulk::DryRun).await, Ok(3));
    let of = |status: TaskStatus| TaskFilter { status: vec![status], ..Default::default() };
    for other in [TaskStatus::Pending, TaskStatus::Completed, TaskStatus::Cancelled] {
        assert_eq!(world.retry_matching(&of(other), Bulk::DryRun).await, Ok(0), "{other:?}");
        assert_eq!(world.retry_matching(&of(other), Bulk::Apply).await, Ok(0), "{other:?}");
    }
    assert_eq!(world.database.count("punctual_tasks").await, 0);
    world.advance_secs(60);
    assert_eq!(world.retry_matching(&filter, Bulk::Apply).await, Ok(3));

    let again = world.claim_up_to(9, "mail").await;
    let mut retried: Vec<_> = again.iter().map(|task| task.retry_of.unwrap()).collect();
    retried.sort_unstable();
    assert_eq!(retried, ids(&failed));
    assert!(again.iter().all(|task| task.run_at == world.now() && task.metadata == map([("ownerId", "me")])));
}

pub(crate) async fn a_bulk_retry_leaves_out_keys_that_live_again(world: World) {
    world.ended(task("mail").dedupe_key("k"), TaskStatus::Failed).await;
    world.ended(task("mail").dedupe_key("j"), TaskStatus::Failed).await;
    world.add(task("mail").dedupe_key("k").in_secs(60)).await;
    assert_eq!(world.retry_matching(&TaskFilter::default(), Bulk::DryRun).await, Ok(1));
    assert_eq!(world.retry_matching(&TaskFilter::default(), Bulk::Apply).await, Ok(1));
    assert_eq!(world.claim_one("mail").await.dedupe_key.as_deref(), Some("j"));
}

pub(crate) async fn a_bulk_retry_of_one_key_twice_makes_one_task(world: World) {
    for _ in 0..3 {
        world.ended(task("mail").dedupe_key("k"), TaskStatus::Failed).await;
    }
    assert_eq!(world.retry_matching(&TaskFilter::default(), Bulk::Apply).await, Ok(1));
    world.claim_one("mail").await;
}
