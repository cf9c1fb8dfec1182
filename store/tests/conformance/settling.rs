//! Settling: by epoch, once, and as the model says.

use std::time::Duration;

use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::json::Json;
use punctual_domain::store::{Settled, Settling};
use punctual_domain::task::{AttemptOutcome, MAX_ERROR_BYTES, MAX_RESULT_BYTES, Settlement, Task, TaskStatus};

use crate::support::*;

fn result(text: &str) -> Settlement {
    Settlement::Completed { result: Some(Json::parse(text).unwrap()) }
}

/// Every settlement there is.
fn settlements() -> Vec<Settlement> {
    use AttemptOutcome::{Failed, Panicked, TimedOut};
    let after = Duration::from_micros(1_500_001);
    let mut all =
        vec![completed(), result(r#"{"n":1.0,"é":"🎉"}"#), snoozed(9), Settlement::HandedBack, Settlement::Cancelled];
    for outcome in [Failed, TimedOut, Panicked] {
        all.push(Settlement::Failed { outcome, error: format!("é {outcome:?}\n'\"") });
        all.push(Settlement::Retried { outcome, error: "again".into(), after });
    }
    all
}

fn settling(task: &Task, settlement: Settlement) -> Settling {
    Settling { task_id: task.id, epoch: task.epoch, settlement }
}

pub(crate) async fn every_settlement_makes_the_move_of_the_model(world: World) {
    for (i, settlement) in settlements().into_iter().enumerate() {
        let running = world.running(task(&format!("topic{i}"))).await;
        world.advance_secs(2);
        let expected = running.clone().settle(running.epoch, &settlement, world.now()).unwrap();
        assert_eq!(world.settle_now(&running, settlement.clone()).await, expected, "{settlement:?}");
    }
}

pub(crate) async fn every_settlement_after_a_troubled_life_makes_the_move_of_the_model(world: World) {
    for (i, settlement) in settlements().into_iter().enumerate() {
        let name = format!("topic{i}");
        let mut running = world.running(task(&name)).await;
        for earlier in [retried(0), snoozed(0), Settlement::HandedBack] {
            world.settle_now(&running, earlier).await;
            running = world.claim_one(&name).await;
        }
        world.advance_secs(30);
        world.expire(3, 10).await.unwrap();
        running = world.claim_one(&name).await;
        let expected = running.clone().settle(running.epoch, &settlement, world.now()).unwrap();
        assert_eq!(world.settle_now(&running, settlement.clone()).await, expected, "{settlement:?}");
    }
}

pub(crate) async fn a_completed_task_shows_its_result(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(3);
    let ended = world.settle_now(&running, result("12345678901234567890.10")).await;
    assert_eq!(ended.status, TaskStatus::Completed);
    assert_eq!(ended.result.unwrap().as_str(), "12345678901234567890.10");
    assert_eq!((ended.completed_at, ended.lost, ended.lease, ended.error), (Some(world.now()), 0, None, None));
}

pub(crate) async fn the_largest_result_and_error_come_back(world: World) {
    let text = format!("\"{}\"", "x".repeat(MAX_RESULT_BYTES - 2));
    let running = world.running(task("mail")).await;
    assert!(world.settle_now(&running, result(&text)).await.result.unwrap().as_str() == text);
    let error = "ü".repeat(MAX_ERROR_BYTES / 2);
    let running = world.running(task("mail")).await;
    assert!(world.settle_now(&running, failed(&error)).await.error.unwrap() == error);
}

pub(crate) async fn a_failed_task_is_kept_with_its_error(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(3);
    let ended = world.settle_now(&running, failed("no such recipient")).await;
    assert_eq!((ended.status, ended.error.as_deref()), (TaskStatus::Failed, Some("no such recipient")));
    assert_eq!((ended.completed_at, ended.result), (Some(world.now()), None));
}

pub(crate) async fn a_retried_task_is_due_after_its_wait(world: World) {
    let running = world.running(task("mail")).await;
    let waits = world.settle_now(&running, retried(10)).await;
    assert_eq!((waits.status, waits.run_at), (TaskStatus::Pending, world.in_secs(10)));
    world.advance_secs(9);
    assert_eq!(world.claim_up_to(1, "mail").await, []);
    world.advance_secs(1);
    let again = world.claim_one("mail").await;
    assert_eq!((again.attempt, again.error.as_deref()), (2, Some("not yet")));
}

pub(crate) async fn a_snoozed_attempt_does_not_count(world: World) {
    let running = world.running(task("mail")).await;
    world.settle_now(&running, snoozed(10)).await;
    world.advance_secs(10);
    let again = world.claim_one("mail").await;
    assert_eq!((again.attempt, again.snoozes, again.attempts_used()), (2, 1, 0));
}

pub(crate) async fn a_task_handed_back_is_due_at_once_as_if_nothing_had_been(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(5);
    let back = world.settle_now(&running, Settlement::HandedBack).await;
    assert_eq!((back.run_at, back.attempt, back.lost), (running.run_at, 0, 0));
    let again = world.claim_one("mail").await;
    assert_eq!((again.attempt, again.epoch), (1, Epoch(2)));
}

pub(crate) async fn a_batch_of_mixed_outcomes_is_answered_in_order(world: World) {
    let all = settlements();
    world.add_all((0..all.len()).map(|_| task("mail"))).await;
    let running = world.claim_up_to(all.len() as u32, "mail").await;
    let unknown = Settling { task_id: TaskId::generate(), epoch: Epoch(1), settlement: completed() };
    let mut batch = vec![unknown.clone()];
    let mut expected = vec![Settled::LeaseLost];
    for (task, settlement) in running.iter().zip(&all) {
        batch.push(Settling { epoch: Epoch(2), ..settling(task, completed()) });
        batch.push(settling(task, settlement.clone()));
        expected.extend([Settled::LeaseLost, Settled::Now]);
    }
    batch.push(unknown);
    expected.push(Settled::LeaseLost);
    assert_eq!(world.settle(batch).await, Ok(expected));
    for (task, settlement) in running.into_iter().zip(&all) {
        let epoch = task.epoch;
        assert_eq!(world.read(task.id).await, task.settle(epoch, settlement, world.now()).unwrap());
    }
}

pub(crate) async fn a_batch_of_nothing_settles_nothing(world: World) {
    assert_eq!(world.settle(vec![]).await, Ok(vec![]));
}

pub(crate) async fn five_thousand_tasks_are_settled_in_one_batch(world: World) {
    world.add_all((0..5_000).map(|_| task("mail"))).await;
    let running = world.claim_up_to(5_000, "mail").await;
    let batch = running.iter().map(|task| settling(task, completed())).collect();
    assert_eq!(world.settle(batch).await, Ok(vec![Settled::Now; 5_000]));
    assert_eq!(world.database.count("punctual_tasks").await, 0);
    assert_eq!(world.database.count("punctual_task_history").await, 5_000);
}

pub(crate) async fn an_old_epoch_settles_nothing(world: World) {
    let old = world.running(task("mail")).await;
    world.settle_now(&old, Settlement::HandedBack).await;
    let present = world.claim_one("mail").await;
    for settlement in settlements().into_iter().filter(|settlement| *settlement != Settlement::HandedBack) {
        assert_eq!(world.settle_as(&old, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(world.read(old.id).await, present);
    world.settle_now(&present, completed()).await;
}

pub(crate) async fn an_epoch_from_the_future_settles_nothing(world: World) {
    let running = world.running(task("mail")).await;
    assert_eq!(world.settle_by(running.id, Epoch(2), completed()).await, Settled::LeaseLost);
    assert_eq!(world.read(running.id).await, running);
}

pub(crate) async fn a_task_that_does_not_run_is_not_settled(world: World) {
    let pending = world.add(task("mail")).await;
    assert_eq!(world.settle_by(pending.id, Epoch(0), completed()).await, Settled::LeaseLost);
    assert_eq!(world.settle_by(pending.id, Epoch(1), completed()).await, Settled::LeaseLost);
    assert_eq!(world.settle_by(TaskId::generate(), Epoch(1), completed()).await, Settled::LeaseLost);
    assert_eq!(world.read(pending.id).await, pending);
}

pub(crate) async fn a_settling_that_comes_again_was_before_and_changes_nothing(world: World) {
    for (i, settlement) in settlements().into_iter().enumerate() {
        let running = world.running(task(&format!("topic{i}"))).await;
        let settled = world.settle_now(&running, settlement.clone()).await;
        world.advance_secs(1);
        assert_eq!(world.settle_as(&running, settlement.clone()).await, Settled::Before, "{settlement:?}");
        assert_eq!(world.read(running.id).await, settled, "{settlement:?}");
        assert_eq!(world.attempts(running.id).await.len(), 1, "{settlement:?}");
    }
}

pub(crate) async fn a_settling_that_comes_again_was_before_also_once_the_next_attempt_runs(world: World) {
    let first = world.running(task("mail")).await;
    world.settle_now(&first, retried(0)).await;
    let second = world.claim_one("mail").await;
    assert_eq!(world.settle_as(&first, retried(0)).await, Settled::Before);
    assert_eq!(world.read(first.id).await, second);
    world.settle_now(&second, completed()).await;
    assert_eq!(world.settle_as(&first, retried(0)).await, Settled::Before);
    assert_eq!(world.settle_as(&second, completed()).await, Settled::Before);
}

pub(crate) async fn a_settling_that_comes_again_was_before_also_once_the_waiting_task_was_cancelled(world: World) {
    for settlement in [retried(60), snoozed(60), Settlement::HandedBack] {
        let running = world.running(task("mail")).await;
        world.settle_now(&running, settlement.clone()).await;
        let cancelled = world.cancel(running.id).await.unwrap();
        assert_eq!(world.settle_as(&running, settlement.clone()).await, Settled::Before, "{settlement:?}");
        assert_eq!(world.settle_as(&running, completed()).await, Settled::LeaseLost, "{settlement:?}");
        assert_eq!(world.read(running.id).await, cancelled);
    }
}

pub(crate) async fn another_outcome_by_a_settled_epoch_changes_nothing(world: World) {
    for (i, settlement) in settlements().into_iter().enumerate() {
        let running = world.running(task(&format!("topic{i}"))).await;
        let settled = world.settle_now(&running, settlement.clone()).await;
        for other in settlements().into_iter().filter(|other| other.outcome() != settlement.outcome()) {
            let answer = world.settle_as(&running, other.clone()).await;
            assert_eq!(answer, Settled::LeaseLost, "{settlement:?}, then {other:?}");
        }
        assert_eq!(world.read(running.id).await, settled, "{settlement:?}");
    }
}

pub(crate) async fn the_first_of_two_settlings_in_one_batch_counts(world: World) {
    world.add_all((0..2).map(|_| task("mail"))).await;
    let running = world.claim_up_to(2, "mail").await;
    let batch = vec![
        settling(&running[0], completed()),
        settling(&running[1], failed("first")),
        settling(&running[0], completed()),
        settling(&running[1], completed()),
    ];
    let expected = vec![Settled::Now, Settled::Now, Settled::Before, Settled::LeaseLost];
    assert_eq!(world.settle(batch).await, Ok(expected));
    assert_eq!(world.read(running[1].id).await.error.as_deref(), Some("first"));
}

pub(crate) async fn a_cancelled_task_is_not_settled(world: World) {
    let running = world.running(task("mail")).await;
    let cancelled = world.cancel(running.id).await.unwrap();
    for settlement in settlements().into_iter().filter(|settlement| *settlement != Settlement::Cancelled) {
        assert_eq!(world.settle_as(&running, settlement).await, Settled::LeaseLost);
    }
    assert_eq!(world.read(running.id).await, cancelled);
}

pub(crate) async fn a_lease_that_ran_out_still_settles_while_nobody_took_over(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(3600);
    let ended = world.settle_now(&running, completed()).await;
    assert_eq!((ended.status, ended.lost), (TaskStatus::Completed, 0));
}

pub(crate) async fn a_freed_task_is_not_settled(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(30);
    world.expire(3, 10).await.unwrap();
    let freed = world.read(running.id).await;
    assert_eq!(world.settle_as(&running, completed()).await, Settled::LeaseLost);
    assert_eq!(world.read(running.id).await, freed);
}

pub(crate) async fn a_task_that_somebody_took_over_is_settled_by_them_alone(world: World) {
    let late = world.running(task("mail")).await;
    world.advance_secs(30);
    world.expire(3, 10).await.unwrap();
    let other = world.another_node().await;
    let present = other.claim_one("mail").await;
    assert_eq!(world.settle_as(&late, completed()).await, Settled::LeaseLost);
    assert_eq!(world.read(late.id).await, present);
    other.settle_now(&present, completed()).await;
    assert_eq!(world.settle_as(&late, completed()).await, Settled::LeaseLost);
}

pub(crate) async fn ended_states_never_change(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        let ended = world.ended(task("mail"), status).await;
        world.advance_secs(3600);
        world.cancel(ended.id).await.unwrap();
        world.cancel_matching(&Default::default(), punctual_domain::store::Bulk::Apply).await.unwrap();
        world.expire(1, 10).await.unwrap();
        world.extend_one(&ended, LEASE).await;
        for settlement in settlements() {
            world.settle_as(&ended, settlement.clone()).await;
            world.settle_by(ended.id, Epoch(ended.epoch.0 + 1), settlement).await;
        }
        assert_eq!(world.claim_up_to(9, "mail").await, []);
        assert_eq!(world.read(ended.id).await, ended);
        assert_eq!(world.attempts(ended.id).await.len(), 1);
    }
}

pub(crate) async fn of_eight_racing_outcomes_one_is_written(world: World) {
    for _ in 0..10 {
        let running = world.running(task("mail")).await;
        let (id, epoch) = (running.id, running.epoch);
        let answers = side_by_side(world.eight_nodes().await, |node| async move {
            // Eight outcomes that differ.
            let error = node.id.to_string();
            let settlement = if error.as_bytes()[35] % 2 == 0 { completed() } else { failed(&error) };
            (node.settle_by(id, epoch, settlement.clone()).await, settlement)
        })
        .await;
        let winners: Vec<_> = answers.iter().filter(|(settled, _)| *settled == Settled::Now).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let expected = running.settle(epoch, &winners[0].1, world.now()).unwrap();
        assert_eq!(world.read(id).await, expected);
    }
}
