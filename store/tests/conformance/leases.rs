//! Leases: extended while they hold, freed once they ran out.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::id::{Epoch, ScheduleId, TaskId};
use punctual_domain::store::{ClaimRequest, Depth, Expired, Extension};
use punctual_domain::task::{LOST_TOO_OFTEN, MAX_LOST, Settlement, TaskStatus};

use crate::support::*;

pub(crate) async fn a_lease_is_extended_from_now(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(10);
    let until = Some(world.now() + Duration::from_millis(60_500));
    assert_eq!(world.extend_one(&running, Duration::from_millis(60_500)).await, until);
    let mut expected = running.clone();
    expected.lease.as_mut().unwrap().expires_at = until;
    assert_eq!(world.read(running.id).await, expected);
    // Not beyond what was asked for: a shorter lease shortens it.
    assert_eq!(world.extend_one(&running, Duration::from_secs(1)).await, Some(world.in_secs(1)));
}

pub(crate) async fn a_lease_holds_until_its_instant_and_is_not_extended_at_it(world: World) {
    let running = world.running(task("mail")).await;
    world.advance(TimeDelta::seconds(30) - TimeDelta::microseconds(1));
    assert_eq!(world.extend_one(&running, LEASE).await, Some(world.now() + LEASE));
    world.advance_secs(30);
    assert_eq!(world.extend_one(&running, LEASE).await, None);
    assert_eq!(world.read(running.id).await.lease.unwrap().expires_at, Some(world.now()));
}

pub(crate) async fn only_the_present_epoch_extends(world: World) {
    let first = world.running(task("mail")).await;
    world.settle_now(&first, Settlement::HandedBack).await;
    assert_eq!(world.extend_one(&first, LEASE).await, None);
    let second = world.claim_one("mail").await;
    assert_eq!(world.extend_one(&first, LEASE * 9).await, None);
    assert_eq!(world.read(first.id).await, second);
    world.settle_now(&second, completed()).await;
    assert_eq!(world.extend_one(&second, LEASE).await, None);
}

pub(crate) async fn extensions_are_answered_in_order(world: World) {
    world.add_all((0..3).map(|_| task("mail"))).await;
    let running = world.claim_up_to(3, "mail").await;
    world.cancel(running[1].id).await.unwrap();
    let held = |task_id, epoch| Extension { task_id, epoch };
    let asked = [
        held(running[2].id, Epoch(1)),
        held(running[1].id, Epoch(1)),
        held(TaskId::generate(), Epoch(1)),
        held(running[0].id, Epoch(2)),
        held(running[0].id, Epoch(1)),
    ];
    let until = Some(world.in_secs(60));
    assert_eq!(world.extend(&asked, LEASE * 2).await, Ok(vec![until, None, None, None, until]));
    assert_eq!(world.extend(&[], LEASE).await, Ok(vec![]));
}

pub(crate) async fn five_thousand_leases_are_extended_at_once(world: World) {
    world.add_all((0..5_000).map(|_| task("mail"))).await;
    let running = world.claim_up_to(5_000, "mail").await;
    let held: Vec<_> = running.iter().map(|task| Extension { task_id: task.id, epoch: task.epoch }).collect();
    assert_eq!(world.extend(&held, LEASE * 2).await, Ok(vec![Some(world.in_secs(60)); 5_000]));
}

pub(crate) async fn the_next_expiry_is_that_of_the_earliest_lease(world: World) {
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(None));
    world.add_all((0..2).map(|_| task("mail"))).await;
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(None));
    let first = world.claim_up_to(1, "mail").await.remove(0);
    let request = ClaimRequest { lease: Duration::from_secs(5), ..world.request("mail", 1) };
    let second = world.claim(&request).await.unwrap().remove(0);
    let expiry = second.lease.unwrap().expires_at;
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(expiry));
    // One that has passed is told until somebody acts on it.
    world.advance_secs(20);
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(expiry));
    world.settle_now(&second, completed()).await;
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(first.lease.unwrap().expires_at));
    let until = world.extend_one(&first, LEASE).await;
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(until));
    world.cancel(first.id).await.unwrap();
    assert_eq!(world.next_repair().await.map(|next| next.expiry_at), Ok(None));
}

pub(crate) async fn an_expired_lease_is_freed_as_the_model_says(world: World) {
    let running = world.running(task("mail").attempts(2)).await;
    world.advance_secs(30);
    let expected = running.lose(MAX_LOST, world.now()).unwrap();
    assert_eq!(world.expire(MAX_LOST, 10).await, Ok(Expired { freed: 1, ..Expired::default() }));
    assert_eq!(world.read(expected.id).await, expected);
    // Back-off does not apply: it can be claimed at once, by a larger epoch.
    let again = world.claim_one("mail").await;
    assert_eq!((again.attempt, again.lost, again.epoch), (2, 2, Epoch(2)));
    assert_eq!(again.attempts_used(), 0);
}

pub(crate) async fn a_lease_that_holds_is_left_alone(world: World) {
    let running = world.running(task("mail")).await;
    world.advance(TimeDelta::seconds(30) - TimeDelta::microseconds(1));
    assert_eq!(world.expire(1, 10).await, Ok(Expired::default()));
    assert_eq!(world.read(running.id).await, running);
}

pub(crate) async fn an_extended_lease_outlives_its_first_instant(world: World) {
    let running = world.running(task("mail")).await;
    world.advance_secs(29);
    world.extend_one(&running, LEASE).await.unwrap();
    world.advance_secs(29);
    assert_eq!(world.expire(1, 10).await, Ok(Expired::default()));
    world.advance_secs(1);
    assert_eq!(world.expire(3, 10).await, Ok(Expired { freed: 1, ..Expired::default() }));
}

pub(crate) async fn the_third_loss_fails_the_task(world: World) {
    let id = world.add(task("mail").attempts(9)).await.id;
    for loss in 1..=MAX_LOST {
        let running = world.claim_one("mail").await;
        world.advance_secs(30);
        let expected = running.lose(MAX_LOST, world.now()).unwrap();
        let failed = u64::from(loss == MAX_LOST);
        let by_topic = (loss == MAX_LOST).then(|| mails(1)).into_iter().collect();
        assert_eq!(world.expire(MAX_LOST, 10).await, Ok(Expired { freed: 1 - failed, failed, by_topic }));
        assert_eq!(world.read(id).await, expected);
    }
    let ended = world.read(id).await;
    assert_eq!((ended.status, ended.error.as_deref()), (TaskStatus::Failed, Some(LOST_TOO_OFTEN)));
    assert_eq!(world.claim_up_to(1, "mail").await, []);
}

pub(crate) async fn losses_count_over_a_whole_life(world: World) {
    let id = world.add(task("mail").attempts(9)).await.id;
    for _ in 0..2 {
        world.claim_one("mail").await;
        world.advance_secs(30);
        assert_eq!(world.expire(MAX_LOST, 10).await.unwrap().freed, 1);
        let running = world.claim_one("mail").await;
        world.settle_now(&running, retried(0)).await;
    }
    assert_eq!(world.read(id).await.lost, 2);
    world.claim_one("mail").await;
    world.advance_secs(30);
    assert_eq!(world.expire(MAX_LOST, 10).await.unwrap().failed, 1);
}

pub(crate) async fn no_more_leases_are_freed_than_asked_for(world: World) {
    world.add_all((0..7).map(|_| task("mail"))).await;
    world.claim_up_to(7, "mail").await;
    world.advance_secs(30);
    for freed in [3, 3, 1, 0] {
        assert_eq!(world.expire(3, 3).await, Ok(Expired { freed, ..Expired::default() }));
    }
}

pub(crate) async fn one_pass_frees_some_and_fails_others(world: World) {
    world.add_all((0..3).map(|_| task("mail"))).await;
    world.claim_up_to(3, "mail").await;
    world.advance_secs(30);
    world.expire(2, 10).await.unwrap();
    world.add_all((0..2).map(|_| task("mail"))).await;
    world.claim_up_to(5, "mail").await;
    world.advance_secs(30);
    assert_eq!(world.expire(2, 10).await, Ok(Expired { freed: 2, failed: 3, by_topic: vec![mails(3)] }));
}

pub(crate) async fn what_fails_by_its_losses_is_counted_by_topic_and_origin(world: World) {
    for topic in ["mail", "mail", "print"] {
        world.running(task(topic)).await;
    }
    world.running(task("mail").of_schedule(ScheduleId::generate(), world.now())).await;
    world.advance_secs(30);
    let of_a_fire = Depth { of_schedules: true, ..mails(1) };
    let by_topic = vec![mails(2), of_a_fire, Depth { topic: "print".into(), ..mails(1) }];
    assert_eq!(world.expire(1, 10).await, Ok(Expired { freed: 0, failed: 4, by_topic }));
}

/// So many mails that callers asked for.
fn mails(tasks: u64) -> Depth {
    Depth { topic: "mail".into(), of_schedules: false, tasks }
}

pub(crate) async fn a_crash_between_claim_and_settle_is_recovered(world: World) {
    let lost = world.running(task("mail").dedupe_key("d").serial_key("s")).await;
    let world = world.reopen().await;
    assert_eq!(world.read(lost.id).await, lost);
    assert_eq!(world.claim_up_to(1, "mail").await, []);
    world.advance_secs(30);
    assert_eq!(world.expire(MAX_LOST, 10).await, Ok(Expired { freed: 1, ..Expired::default() }));
    let again = world.claim_one("mail").await;
    assert_eq!((again.id, again.lease.unwrap().owner), (lost.id, world.id));
    assert!(again.epoch > lost.epoch);
    world.settle_now(&again, completed()).await;
}

pub(crate) async fn eight_reconcilers_free_each_lease_once(world: World) {
    world.add_all((0..200).map(|_| task("mail"))).await;
    world.claim_up_to(200, "mail").await;
    world.advance_secs(30);
    let freed = side_by_side(world.eight_nodes().await, |node| async move {
        let mut freed = 0;
        loop {
            let expired = node.expire(3, 20).await.unwrap();
            freed += expired.freed;
            if expired == Expired::default() {
                return freed;
            }
        }
    })
    .await;
    assert_eq!(freed.iter().sum::<u64>(), 200);
    assert!(world.list(Default::default()).await.iter().all(|task| task.lost == 1));
    assert_eq!(world.database.count("punctual_attempts").await, 200);
}
