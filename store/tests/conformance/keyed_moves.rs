//! `Idempotency-Key`s of calls that move tasks or schedules, and of those that change nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use punctual_domain::store::{
    Answer, Backfill, Backfilled, Bulk, Changed, Created, Depth, Remember, Reply, StoreError, TaskFilter,
};
use punctual_domain::task::TaskStatus;

use crate::support::*;

/// A call under the key `k` whose answer is `body`.
fn keyed<Made: ?Sized + 'static>(fingerprint: &str, body: &'static str) -> Option<Remember<Made>> {
    Some(Remember {
        owner: "me".into(),
        key: "k".into(),
        fingerprint: fingerprint.into(),
        answer: Box::new(move |_| answer(body)),
    })
}

/// A bulk call under the key `k` whose answer is the count.
fn counted() -> Option<Remember<u64>> {
    let answer = Box::new(|count: &u64| Answer { status: 200, body: count.to_string() });
    Some(Remember { owner: "me".into(), key: "k".into(), fingerprint: "f".into(), answer })
}

fn answer(body: &str) -> Answer {
    Answer { status: 200, body: body.into() }
}

pub(crate) async fn a_cancel_that_comes_again_gets_its_first_answer(world: World) {
    let task = world.add(task("mail")).await;
    let first = world.store.cancel(task.id, keyed("f", "first")).await;
    assert_eq!(first, Ok(Reply::Made(task.clone().cancel(world.now()).unwrap())));
    let again = world.store.cancel(task.id, keyed("f", "second")).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("first"))));
    assert_eq!(world.store.cancel(task.id, keyed("g", "")).await, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(world.remembered("me", "k", "f").await, Ok(Some(answer("first"))));
}

pub(crate) async fn a_refused_cancel_is_not_remembered(world: World) {
    let unknown = punctual_domain::id::TaskId::generate();
    assert_eq!(world.store.cancel(unknown, keyed("f", "")).await, Err(StoreError::NotFound));
    let task = world.add(task("mail")).await;
    assert!(matches!(world.store.cancel(task.id, keyed("g", "")).await, Ok(Reply::Made(_))));
}

pub(crate) async fn a_reschedule_that_comes_again_makes_nothing(world: World) {
    let old = world.add(task("mail").in_secs(60)).await;
    let replace = || task("mail").in_secs(120).build();
    let made = world.store.reschedule(old.id, replace(), keyed("f", "first")).await.unwrap().into_made().unwrap();
    assert_eq!(made.rescheduled_from, Some(old.id));
    let again = world.store.reschedule(old.id, replace(), keyed("f", "second")).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("first"))), "and not that it has ended");
    let other = world.store.reschedule(made.id, replace(), keyed("g", "")).await;
    assert_eq!(other, Err(StoreError::IdempotencyKeyReused));
    assert_eq!(world.list(TaskFilter::default()).await, [made, old.cancel(world.now()).unwrap()]);
}

pub(crate) async fn a_refused_reschedule_leaves_its_key_free(world: World) {
    world.add(task("mail").dedupe_key("taken")).await;
    let old = world.add(task("mail")).await;
    let refused = world.store.reschedule(old.id, task("mail").dedupe_key("taken").build(), keyed("f", "")).await;
    assert_eq!(refused, Err(StoreError::DedupeKeyInUse("taken".into())));
    let made = world.store.reschedule(old.id, task("mail").build(), keyed("g", "")).await;
    assert!(matches!(made, Ok(Reply::Made(_))), "{made:?}");
}

pub(crate) async fn a_retry_that_comes_again_makes_nothing(world: World) {
    let failed = world.ended(task("mail"), TaskStatus::Failed).await;
    let made = world.store.retry(failed.id, keyed("f", "first")).await.unwrap().into_made().unwrap();
    assert!(matches!(&made, Created::Fresh(task) if task.retry_of == Some(failed.id)));
    assert_eq!(world.store.retry(failed.id, keyed("f", "second")).await, Ok(Reply::Replayed(answer("first"))));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 2);
}

pub(crate) async fn eight_keyed_retries_make_one_task(world: World) {
    let failed = world.ended(task("mail"), TaskStatus::Failed).await.id;
    let answers = side_by_side(world.eight_nodes().await, |node| async move {
        node.store.retry(failed, keyed("f", "first")).await.unwrap()
    })
    .await;
    assert_eq!(answers.iter().filter(|reply| matches!(reply, Reply::Made(_))).count(), 1);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 2);
}

pub(crate) async fn a_bulk_change_that_comes_again_changes_nothing(world: World) {
    for _ in 0..3 {
        world.ended(task("mail"), TaskStatus::Failed).await;
    }
    let all = TaskFilter::default();
    let made = Changed { count: 3, ..Changed::default() };
    assert_eq!(world.store.retry_matching(&all, Bulk::Apply, counted()).await, Ok(Reply::Made(made)));
    let again = world.store.retry_matching(&all, Bulk::Apply, counted()).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("3"))));
    assert_eq!(world.database.count("punctual_tasks").await, 3);
    let other = world.store.cancel_matching(&all, Bulk::Apply, keyed("g", "")).await;
    assert_eq!(other, Err(StoreError::IdempotencyKeyReused));
}

pub(crate) async fn a_dry_run_that_comes_again_counts_what_it_counted(world: World) {
    world.add_all((0..3).map(|_| task("mail"))).await;
    let all = TaskFilter::default();
    let made = Changed { count: 3, ..Changed::default() };
    assert_eq!(world.store.cancel_matching(&all, Bulk::DryRun, counted()).await, Ok(Reply::Made(made)));
    world.add(task("mail")).await;
    let again = world.store.cancel_matching(&all, Bulk::DryRun, counted()).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("3"))));
    assert_eq!(world.database.count("punctual_tasks").await, 4);
}

/// Fails so many tasks at once.
async fn fail_many(world: &World, count: usize) {
    world.add_all((0..count).map(|_| task("mail"))).await;
    let claimed = world.claim_up_to(count as u32, "mail").await;
    let settlings = claimed.iter().map(|task| punctual_domain::store::Settling {
        task_id: task.id,
        epoch: task.epoch,
        settlement: failed("it broke"),
    });
    world.settle(settlings.collect()).await.unwrap();
}

pub(crate) async fn thousands_are_retried_each_once(world: World) {
    fail_many(&world, 2_500).await;
    assert_eq!(world.retry_matching(&TaskFilter::default(), Bulk::DryRun).await, Ok(2_500));
    assert_eq!(world.database.count("punctual_tasks").await, 0);
    assert_eq!(world.retry_matching(&TaskFilter::default(), Bulk::Apply).await, Ok(2_500));
    let mut retried: Vec<_> =
        world.claim_up_to(9_999, "mail").await.into_iter().map(|task| task.retry_of.unwrap()).collect();
    retried.sort_unstable();
    retried.dedup();
    assert_eq!(retried.len(), 2_500);
}

/// The caller is gone in the middle; whoever repeats the call goes on, and no task is retried twice.
pub(crate) async fn a_bulk_retry_that_broke_off_goes_on_where_it_stopped(world: World) {
    fail_many(&world, 2_500).await;
    let all = TaskFilter::default();
    let first = tokio::spawn({
        let (store, all) = (world.store.clone(), all.clone());
        async move { store.retry_matching(&all, Bulk::Apply, counted()).await }
    });
    while world.database.count("punctual_tasks").await == 0 {
        tokio::task::yield_now().await;
    }
    first.abort();
    // It may have been quick enough to end all the same.
    let _ = first.await;
    let count = match world.store.retry_matching(&all, Bulk::Apply, counted()).await.unwrap() {
        Reply::Made(changed) => changed.count.to_string(),
        Reply::Replayed(answer) => answer.body,
    };
    assert_eq!(count, "2500");
    assert_eq!(world.database.count("punctual_tasks").await, 2_500);
    assert_eq!(world.remembered("me", "k", "f").await, Ok(Some(answer("2500"))));
}

pub(crate) async fn eight_calls_of_one_bulk_retry_do_it_together(world: World) {
    fail_many(&world, 2_500).await;
    let written = Arc::new(AtomicU64::new(0));
    let answers = side_by_side(world.eight_nodes().await, |node| {
        let written = written.clone();
        async move {
            match node.store.retry_matching(&TaskFilter::default(), Bulk::Apply, counted()).await.unwrap() {
                Reply::Made(changed) => {
                    written.fetch_add(1, Ordering::Relaxed);
                    changed.count.to_string()
                }
                Reply::Replayed(answer) => answer.body,
            }
        }
    })
    .await;
    assert!(answers.iter().all(|count| count == "2500"), "{answers:?}");
    assert_eq!(written.load(Ordering::Relaxed), 1);
    assert_eq!(world.database.count("punctual_tasks").await, 2_500);
}

pub(crate) async fn a_bulk_cancel_tells_which_tasks_ran_and_their_topics(world: World) {
    let running = world.running(task("mail")).await;
    world.add_all((0..3).map(|_| task("mail"))).await;
    world.ended(task("print"), TaskStatus::Failed).await;
    world.add(task("print")).await;
    let dry = world.store.cancel_matching(&TaskFilter::default(), Bulk::DryRun, None).await;
    assert_eq!(dry, Ok(Reply::Made(Changed { count: 5, ..Changed::default() })));
    let cancelled = world.store.cancel_matching(&TaskFilter::default(), Bulk::Apply, None).await;
    let of = |topic: &str, tasks| Depth { topic: topic.into(), of_schedules: false, tasks };
    let by_topic = vec![of("mail", 4), of("print", 1)];
    assert_eq!(cancelled, Ok(Reply::Made(Changed { count: 5, stopped: vec![running.id], by_topic })));
}

pub(crate) async fn schedule_calls_that_come_again_make_nothing(world: World) {
    fn under<Made: ?Sized + 'static>(key: &str, body: &'static str) -> Option<Remember<Made>> {
        keyed("f", body).map(|remember| Remember { key: key.into(), ..remember })
    }
    let schedule = world.unwritten("nightly");
    let made = world.store.create_schedule(&schedule, under("create", "first")).await;
    assert_eq!(made, Ok(Reply::Made(schedule.clone())));
    let again = world.store.create_schedule(&schedule, under("create", "second")).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("first"))), "and not that the name is taken");

    let updated = world.store.update_schedule(&schedule, under("update", "first")).await;
    assert_eq!(updated.unwrap().into_made().unwrap().version, 2);
    let again = world.store.update_schedule(&schedule, under("update", "second")).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("first"))), "and not that the version is another");
    assert_eq!(world.schedule_history(schedule.id).await.unwrap().len(), 2);

    assert!(matches!(world.store.trigger(schedule.id, "2026a", under("trigger", "first")).await, Ok(Reply::Made(_))));
    let again = world.store.trigger(schedule.id, "2026a", under("trigger", "second")).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("first"))));

    let instants = vec![world.in_secs(-60), world.in_secs(-30)];
    let backfill = || Backfill { instants: instants.clone(), most: 9, bulk: Bulk::Apply, tz_version: "2026a".into() };
    let first = world.store.backfill(schedule.id, backfill(), under("backfill", "first")).await;
    assert_eq!(first, Ok(Reply::Made(Backfilled { made: instants.clone(), already_fired: 0, left: 0 })));
    let again = world.store.backfill(schedule.id, backfill(), under("backfill", "second")).await;
    assert_eq!(again, Ok(Reply::Replayed(answer("first"))));
    assert_eq!(world.list(TaskFilter::default()).await.len(), 3);
    let reused = world.store.trigger(schedule.id, "2026a", keyed("g", "")).await;
    assert!(matches!(reused, Ok(Reply::Made(_))), "another key");
    assert_eq!(world.store.create_schedule(&schedule, keyed("h", "")).await, Err(StoreError::IdempotencyKeyReused));
}
