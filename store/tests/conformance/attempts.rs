//! What is known of a task's attempts.

use chrono::{DateTime, Utc};
use punctual_domain::id::Epoch;
use punctual_domain::task::{AttemptOutcome, AttemptRecord, LOST_TOO_OFTEN, Settlement, Task};

use crate::support::*;

/// The record of the attempt that `claimed` began.
fn record(claimed: &Task, outcome: AttemptOutcome, ended_at: DateTime<Utc>, error: Option<&str>) -> AttemptRecord {
    AttemptRecord {
        number: claimed.attempt,
        node_id: claimed.lease.unwrap().owner,
        epoch: claimed.epoch,
        started_at: claimed.started_at.unwrap(),
        ended_at: Some(ended_at),
        outcome: Some(outcome),
        error: error.map(Into::into),
    }
}

pub(crate) async fn a_first_try_success_shows_its_one_attempt(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(2);
    world.settle_now(&running, completed()).await;
    let expected = record(&running, AttemptOutcome::Completed, world.now(), None);
    assert_eq!(world.attempts(running.id).await, [expected]);
}

pub(crate) async fn a_running_task_shows_the_attempt_that_runs(world: World) {
    let first = world.running(task("mail")).await;
    let runs = |task: &Task| AttemptRecord {
        ended_at: None,
        outcome: None,
        ..record(task, AttemptOutcome::Lost, world.now(), None)
    };
    assert_eq!(world.attempts(first.id).await, [runs(&first)]);
    world.settle_now(&first, retried(0)).await;
    let ended = record(&first, AttemptOutcome::Failed, world.now(), Some("not yet"));
    let second = world.claim_one("mail").await;
    assert_eq!(world.attempts(first.id).await, [ended, runs(&second)]);
}

pub(crate) async fn a_task_that_never_ran_shows_no_attempts(world: World) {
    let pending = world.add(task("mail")).await;
    assert_eq!(world.attempts(pending.id).await, []);
    world.cancel(pending.id).await.unwrap();
    assert_eq!(world.attempts(pending.id).await, []);
}

pub(crate) async fn every_attempt_is_recorded_in_order(world: World) {
    use AttemptOutcome::{Completed, Failed, Panicked, TimedOut};
    let id = world.add(task("mail")).await.id;
    let mut expected = Vec::new();
    for outcome in [Failed, TimedOut, Panicked] {
        let node = world.another_node().await;
        let claimed = node.claim_one("mail").await;
        world.advance_secs(2);
        let error = format!("{outcome:?} é");
        expected.push(record(&claimed, outcome, world.now(), Some(&error)));
        node.settle_now(&claimed, Settlement::Retried { outcome, error, after: Default::default() }).await;
    }
    let claimed = world.claim_one("mail").await;
    expected.push(record(&claimed, Completed, world.now(), None));
    world.settle_now(&claimed, completed()).await;
    assert_eq!(world.attempts(id).await, expected);
}

pub(crate) async fn a_failure_for_good_is_recorded_with_its_outcome(world: World) {
    use AttemptOutcome::{Failed, Panicked, TimedOut};
    for outcome in [Failed, TimedOut, Panicked] {
        let running = world.running(task("mail")).await;
        world.settle_now(&running, Settlement::Failed { outcome, error: "no".into() }).await;
        assert_eq!(world.attempts(running.id).await, [record(&running, outcome, world.now(), Some("no"))]);
    }
}

pub(crate) async fn lost_attempts_are_recorded(world: World) {
    let id = world.add(task("mail")).await.id;
    let mut claims = Vec::new();
    for _ in 0..3 {
        claims.push(world.claim_one("mail").await);
        world.advance_secs(30);
        world.expire(3, 10).await.unwrap();
    }
    let attempts = world.attempts(id).await;
    assert_eq!(attempts.len(), 3);
    for (attempt, claimed) in attempts.iter().zip(&claims) {
        assert_eq!((attempt.number, attempt.epoch), (claimed.attempt, claimed.epoch));
        assert_eq!((attempt.node_id, Some(attempt.started_at)), (world.id, claimed.started_at));
        assert_eq!(attempt.outcome, Some(AttemptOutcome::Lost));
        assert!(attempt.ended_at.is_some());
    }
    let errors: Vec<_> = attempts.iter().map(|attempt| attempt.error.as_deref()).collect();
    assert_eq!(errors, [None, None, Some(LOST_TOO_OFTEN)], "the last loss ends the task");
}

pub(crate) async fn a_snoozed_attempt_is_recorded(world: World) {
    let first = world.running(task("mail")).await;
    world.settle_now(&first, snoozed(0)).await;
    let second = world.claim_one("mail").await;
    world.settle_now(&second, completed()).await;
    let expected = [
        record(&first, AttemptOutcome::Snoozed, world.now(), None),
        record(&second, AttemptOutcome::Completed, world.now(), None),
    ];
    assert_eq!(world.attempts(first.id).await, expected);
}

pub(crate) async fn the_number_of_an_attempt_handed_back_comes_again(world: World) {
    let first = world.running(task("mail")).await;
    world.settle_now(&first, Settlement::HandedBack).await;
    let second = world.claim_one("mail").await;
    world.settle_now(&second, completed()).await;
    let attempts = world.attempts(first.id).await;
    let expected = [
        record(&first, AttemptOutcome::HandedBack, world.now(), None),
        record(&second, AttemptOutcome::Completed, world.now(), None),
    ];
    assert_eq!(attempts, expected);
    assert_eq!(
        attempts.iter().map(|attempt| (attempt.number, attempt.epoch)).collect::<Vec<_>>(),
        [(1, Epoch(1)), (1, Epoch(2))]
    );
}

pub(crate) async fn a_cancelled_attempt_is_recorded_whoever_cancelled_it(world: World) {
    let outside = world.running(task("mail")).await;
    world.advance_secs(2);
    world.cancel(outside.id).await.unwrap();
    assert_eq!(world.attempts(outside.id).await, [record(&outside, AttemptOutcome::Cancelled, world.now(), None)]);

    let inside = world.running(task("mail")).await;
    world.settle_now(&inside, Settlement::Cancelled).await;
    assert_eq!(world.attempts(inside.id).await, [record(&inside, AttemptOutcome::Cancelled, world.now(), None)]);
}

pub(crate) async fn cancelling_between_attempts_records_no_other(world: World) {
    let running = world.running(task("mail")).await;
    world.settle_now(&running, retried(60)).await;
    let ended_at = world.now();
    world.advance_secs(2);
    world.cancel(running.id).await.unwrap();
    let expected = record(&running, AttemptOutcome::Failed, ended_at, Some("not yet"));
    assert_eq!(world.attempts(running.id).await, [expected]);
}

pub(crate) async fn attempts_outlive_a_restart(world: World) {
    let running = world.running(task("mail")).await;
    world.settle_now(&running, retried(0)).await;
    let second = world.claim_one("mail").await;
    world.settle_now(&second, completed()).await;
    let before = world.attempts(running.id).await;
    let world = world.reopen().await;
    assert_eq!(world.attempts(running.id).await, before);
}
