//! Cancelling, one or many.

use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::store::{Bulk, Span, StoreError, TaskFilter};
use punctual_domain::task::{AttemptOutcome, TaskStatus};

use crate::support::*;

pub(crate) async fn a_pending_task_is_cancelled(world: World) {
    let pending = world.add(task("mail").dedupe_key("d")).await;
    world.advance_secs(2);
    let expected = pending.cancel(world.now()).unwrap();
    assert_eq!(world.cancel(expected.id).await, Ok(expected.clone()));
    assert_eq!(world.read(expected.id).await, expected);
    assert_eq!(world.claim_up_to(1, "mail").await, []);
}

pub(crate) async fn a_running_task_is_cancelled_at_once(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(2);
    let expected = running.clone().cancel(world.now()).unwrap();
    assert_eq!(world.cancel(running.id).await, Ok(expected.clone()));
    assert_eq!(world.read(running.id).await, expected);
    assert_eq!(world.extend_one(&running, LEASE).await, None);
}

pub(crate) async fn a_cancelled_task_keeps_its_last_error(world: World) {
    let running = world.running(task("mail")).await;
    let waits = world.settle_now(&running, retried(60)).await;
    let expected = waits.cancel(world.now()).unwrap();
    assert_eq!(world.cancel(running.id).await, Ok(expected.clone()));
    assert_eq!(expected.error.as_deref(), Some("not yet"));
}

pub(crate) async fn cancelling_an_ended_task_answers_it_as_it_stands(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        let ended = world.ended(task("mail"), status).await;
        world.advance_secs(2);
        assert_eq!(world.cancel(ended.id).await, Ok(ended));
    }
}

pub(crate) async fn an_unknown_task_is_not_cancelled(world: World) {
    assert_eq!(world.cancel(TaskId::generate()).await, Err(StoreError::NotFound));
}

pub(crate) async fn a_cancel_and_a_settle_at_once_end_the_task_once(world: World) {
    for _ in 0..20 {
        let running = world.running(task("mail")).await;
        let other = world.another_node().await;
        let (cancelled, settled) = tokio::join!(world.cancel(running.id), other.settle_as(&running, completed()));
        let cancelled = cancelled.unwrap();
        assert_eq!(world.read(running.id).await, cancelled);
        let expected = match settled {
            punctual_domain::store::Settled::Now => TaskStatus::Completed,
            _ => TaskStatus::Cancelled,
        };
        assert_eq!(cancelled.status, expected);
        assert_eq!(world.attempts(running.id).await.len(), 1);
    }
}

pub(crate) async fn each_filter_cancels_what_matches_and_nothing_else(world: World) {
    let schedule_id = ScheduleId::generate();
    let wanted = [
        task("print"),
        task("mail").owner("me"),
        task("mail").metadata("tenantId", "acme"),
        task("mail").metadata("correlationId", "trace"),
        task("mail").client_request_id("c"),
        task("mail").of_schedule(schedule_id, world.now()),
        task("mail").at(world.in_secs(100)),
    ];
    let filters = [
        TaskFilter { topic: Some(topic("print")), ..Default::default() },
        TaskFilter { owner_id: Some("me".into()), ..Default::default() },
        TaskFilter { tenant_id: Some("acme".into()), ..Default::default() },
        TaskFilter { correlation_id: Some("trace".into()), ..Default::default() },
        TaskFilter { client_request_id: Some("c".into()), ..Default::default() },
        TaskFilter { schedule_id: Some(schedule_id), ..Default::default() },
        TaskFilter {
            run_at: Span { from: Some(world.in_secs(100)), to: Some(world.in_secs(101)) },
            ..Default::default()
        },
    ];
    let batch = world.add_all(wanted).await;
    let other = world.add(task("mail").owner("you").metadata("tenantId", "other")).await;
    for (expected, filter) in batch.iter().zip(&filters) {
        assert_eq!(world.cancel_matching(filter, Bulk::DryRun).await, Ok(1), "{filter:?}");
        assert_eq!(world.read(expected.id).await, *expected, "a dry run changes nothing");
        assert_eq!(world.cancel_matching(filter, Bulk::Apply).await, Ok(1), "{filter:?}");
        assert_eq!(world.read(expected.id).await, expected.clone().cancel(world.now()).unwrap());
        assert_eq!(world.cancel_matching(filter, Bulk::Apply).await, Ok(0), "ended ones are left");
    }
    assert_eq!(world.read(other.id).await, other);
}

pub(crate) async fn a_bulk_cancel_looks_at_the_status(world: World) {
    let running = world.running(task("mail")).await;
    let pending = world.add(task("mail")).await;
    let failed = world.ended(task("print"), TaskStatus::Failed).await;
    let of = |status: &[TaskStatus]| TaskFilter { status: status.into(), ..Default::default() };
    assert_eq!(world.cancel_matching(&of(&[TaskStatus::Failed]), Bulk::DryRun).await, Ok(0));
    assert_eq!(world.cancel_matching(&of(&[TaskStatus::Failed]), Bulk::Apply).await, Ok(0));
    assert_eq!(world.cancel_matching(&of(&[TaskStatus::Running]), Bulk::Apply).await, Ok(1));
    assert_eq!(world.read(running.id).await.status, TaskStatus::Cancelled);
    assert_eq!(world.attempts(running.id).await[0].outcome, Some(AttemptOutcome::Cancelled));
    assert_eq!(world.cancel_matching(&of(&[TaskStatus::Pending, TaskStatus::Failed]), Bulk::Apply).await, Ok(1));
    assert_eq!(world.read(pending.id).await.status, TaskStatus::Cancelled);
    assert_eq!(world.read(failed.id).await, failed);
}

pub(crate) async fn a_bulk_cancel_takes_thousands_at_once(world: World) {
    world.add_all((0..3_000).map(|i| task("mail").owner(if i % 3 == 0 { "me" } else { "you" }))).await;
    let filter = TaskFilter { owner_id: Some("you".into()), ..Default::default() };
    assert_eq!(world.cancel_matching(&filter, Bulk::DryRun).await, Ok(2_000));
    assert_eq!(world.cancel_matching(&filter, Bulk::Apply).await, Ok(2_000));
    assert_eq!(world.cancel_matching(&TaskFilter::default(), Bulk::Apply).await, Ok(1_000));
    assert_eq!(world.database.count("punctual_tasks").await, 0);
}

pub(crate) async fn a_bulk_cancel_tells_which_tasks_ran_and_not_which_wait_again(world: World) {
    let running = world.running(task("mail")).await;
    let again = world.running(task("mail").attempts(2)).await;
    world.settle_now(&again, retried(60)).await;
    world.add(task("mail")).await;
    let cancelling = world.store.cancel_matching(&TaskFilter::default(), Bulk::Apply, None).await;
    let changed = cancelling.unwrap().into_made().unwrap();
    assert_eq!((changed.count, changed.stopped), (3, vec![running.id]));
}
