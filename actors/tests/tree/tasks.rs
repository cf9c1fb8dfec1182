//! One-off tasks.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use punctual_actors::{Handlers, Overheard, Settings};
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::retry::{Backoff, Growth, RetryPolicy};
use punctual_domain::store::{
    ClaimRequest, Page, PullRequest, PullTopic, Suspects, TaskFilter, TaskWithAttempts, Want,
};
use punctual_domain::task::{AttemptOutcome, Due, NewTask, TaskStatus};
use punctual_domain::topic::{Route, TopicDefinition};
use punctual_sdk::Outcome;
use tokio::sync::Semaphore;

use crate::support::{World, does, eventually, task};

#[tokio::test]
async fn a_due_task_runs_and_its_result_is_kept() {
    let world = World::new().await;
    let echo = does(|attempt| async move { Outcome::Completed { result: Some(attempt.payload) } });
    let tree = world.start(Handlers::default().with("echo", echo)).await;
    let id = world.add(task("echo")).await;
    tree.hints().tasks_written();
    let done = world.until(id, TaskStatus::Completed).await;
    assert_eq!(done.task.result.unwrap().as_str(), "{}");
    assert_eq!(done.attempts.len(), 1);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_task_runs_when_its_instant_comes_and_not_before() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let id = world.add(NewTask { due: Due::After(Duration::from_secs(60)), ..task("later") }).await;
    let sooner = world.add(task("now")).await;
    tree.hints().tasks_written();
    world.until(sooner, TaskStatus::Completed).await;
    assert_eq!(world.task(id).await.task.status, TaskStatus::Pending);
    world.clock.advance(TimeDelta::seconds(60));
    world.until(id, TaskStatus::Completed).await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_failed_attempt_is_retried_by_the_policy_and_then_fails_for_good() {
    let world = World::new().await;
    let tree = world.start(Handlers::default().with("bad", does(|_| async { Outcome::failed("no") }))).await;
    let backoff = Backoff { growth: Growth::Fixed, delay: 10_000, max_delay: 10_000, jitter: 0.0 };
    let id = world.add(NewTask { retry: RetryPolicy { attempts: 3, backoff }, ..task("bad") }).await;
    tree.hints().tasks_written();
    for attempt in 1..3 {
        let ended = |found: TaskWithAttempts| found.attempts.iter().filter(|attempt| attempt.outcome.is_some()).count();
        eventually(|| async { (ended(world.task(id).await) == attempt).then_some(()) }).await;
        world.clock.advance(TimeDelta::seconds(10));
    }
    let failed = world.until(id, TaskStatus::Failed).await;
    let outcomes: Vec<_> = failed.attempts.iter().map(|attempt| attempt.outcome).collect();
    assert_eq!(outcomes, [Some(AttemptOutcome::Failed); 3]);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn tasks_that_have_to_wait_do_not_wait_for_each_other_however_quick_the_others_were() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let begun = Arc::new(AtomicU32::new(0));
    let handler = {
        let (gate, begun) = (gate.clone(), begun.clone());
        does(move |attempt| {
            let (gate, begun) = (gate.clone(), begun.clone());
            async move {
                if attempt.payload.get() == "1" {
                    begun.fetch_add(1, Ordering::SeqCst);
                    let _ = gate.acquire().await;
                }
                Outcome::completed()
            }
        })
    };
    let mut topic = TopicDefinition::new("mixed".parse().unwrap(), Route::Handler);
    topic.concurrency = 400;
    world.store.put_topic(&topic).await.unwrap();
    // Quick ones first, so that slots are given many at a time; then one of a hundred that has to wait.
    let tasks = (0..2_000).map(|i| {
        let payload = Json::parse(if i >= 1_000 && i % 100 == 0 { "1" } else { "0" }).unwrap();
        NewTask { payload, ..task("mixed") }
    });
    world.store.create_tasks(tasks.collect(), None).await.unwrap();
    let tree = world.start(Handlers::default().with("mixed", handler)).await;
    eventually(|| async { (begun.load(Ordering::SeqCst) == 10).then_some(()) }).await;
    let filter = TaskFilter { status: vec![TaskStatus::Running, TaskStatus::Pending], ..TaskFilter::default() };
    eventually(|| async { (world.store.tasks(&filter, Page::first(1_000)).await.unwrap().len() == 10).then_some(()) })
        .await;
    gate.add_permits(10);
    eventually(|| async { world.store.tasks(&filter, Page::first(1_000)).await.unwrap().is_empty().then_some(()) })
        .await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_panicking_handler_hurts_only_its_own_task() {
    let world = World::new().await;
    let handlers = Handlers::default()
        .with("boom", does(|_| async { panic!("boom") }))
        .with("fine", does(|_| async { Outcome::completed() }));
    let tree = world.start(handlers).await;
    let boom = world.add(task("boom")).await;
    let fine = world.add(task("fine")).await;
    tree.hints().tasks_written();
    let failed = world.until(boom, TaskStatus::Failed).await;
    assert_eq!(failed.task.error.as_deref(), Some("panicked: boom"));
    world.until(fine, TaskStatus::Completed).await;
    let again = world.add(task("boom")).await;
    tree.hints().tasks_written();
    world.until(again, TaskStatus::Failed).await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn no_more_attempts_run_at_a_time_than_the_topic_allows_and_all_run_once() {
    let world = World::new().await;
    let definition = TopicDefinition { concurrency: 3, ..TopicDefinition::new("few".parse().unwrap(), Route::Handler) };
    world.store.put_topic(&definition).await.unwrap();
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let (seen, twice) = (Arc::new(Mutex::new(HashSet::new())), Arc::new(AtomicU32::new(0)));
    let few = {
        let (now, most, seen, twice) = (now.clone(), most.clone(), seen.clone(), twice.clone());
        does(move |attempt| {
            let (now, most, seen, twice) = (now.clone(), most.clone(), seen.clone(), twice.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                twice.fetch_add(u32::from(!seen.lock().unwrap().insert(attempt.task_id)), Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Outcome::completed()
            }
        })
    };
    let tree = world.start(Handlers::default().with("few", few)).await;
    let tasks: Vec<_> = (0..200).map(|_| task("few")).collect();
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    world.store.create_tasks(tasks, None).await.unwrap();
    tree.hints().tasks_written();
    for id in ids {
        world.until(id, TaskStatus::Completed).await;
    }
    assert!(most.load(Ordering::SeqCst) <= 3);
    assert_eq!(twice.load(Ordering::SeqCst), 0);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_topic_that_is_stuck_does_not_hold_up_another() {
    let world = World::new().await;
    let handlers = Handlers::default()
        .with("stuck", does(|_| std::future::pending()))
        .with("free", does(|_| async { Outcome::completed() }));
    let settings = Settings { max_tasks_per_poll: 60, ..Settings::default() };
    let tree = world.start_with(handlers, settings).await;
    world.store.create_tasks((0..500).map(|_| task("stuck")).collect(), None).await.unwrap();
    tree.hints().tasks_written();
    for _ in 0..20 {
        let id = world.add(task("free")).await;
        tree.hints().tasks_written();
        world.until(id, TaskStatus::Completed).await;
    }
    tree.drain(Duration::ZERO).await.unwrap();
}

#[tokio::test]
async fn draining_hands_back_what_still_runs_without_using_up_an_attempt() {
    let world = World::new().await;
    let tree = world.start(Handlers::default().with("long", does(|_| std::future::pending()))).await;
    let ids: Vec<_> = (0..10).map(|_| task("long")).collect();
    let ids = {
        let known: Vec<_> = ids.iter().map(|task| task.id).collect();
        world.store.create_tasks(ids, None).await.unwrap();
        known
    };
    tree.hints().tasks_written();
    for id in &ids {
        world.until(*id, TaskStatus::Running).await;
    }
    tree.drain(Duration::ZERO).await.unwrap();
    for id in ids {
        let found = world.task(id).await;
        assert_eq!((found.task.status, found.task.attempt, found.task.lost), (TaskStatus::Pending, 0, 0));
        assert_eq!(found.attempts[0].outcome, Some(AttemptOutcome::HandedBack));
    }
}

#[tokio::test]
async fn a_drain_lets_attempts_finish() {
    let world = World::new().await;
    let gate = Arc::new(Semaphore::new(0));
    let waits = {
        let gate = gate.clone();
        does(move |_| {
            let gate = gate.clone();
            async move {
                gate.acquire().await.unwrap().forget();
                Outcome::completed()
            }
        })
    };
    let tree = world.start(Handlers::default().with("waits", waits)).await;
    let id = world.add(task("waits")).await;
    tree.hints().tasks_written();
    world.until(id, TaskStatus::Running).await;
    let drained = tokio::spawn(tree.drain(Duration::from_secs(60)));
    gate.add_permits(1);
    drained.await.unwrap().unwrap();
    assert_eq!(world.task(id).await.task.status, TaskStatus::Completed);
}

#[tokio::test]
async fn a_cancelled_task_stops_its_attempt() {
    let world = World::new().await;
    let stopped = Arc::new(Semaphore::new(0));
    let waits = {
        let stopped = stopped.clone();
        does(move |attempt| {
            let stopped = stopped.clone();
            async move {
                attempt.cancelled.cancelled().await;
                stopped.add_permits(1);
                Outcome::completed()
            }
        })
    };
    let tree = world.start(Handlers::default().with("waits", waits)).await;
    let id = world.add(task("waits")).await;
    tree.hints().tasks_written();
    world.until(id, TaskStatus::Running).await;
    world.store.cancel(id, None).await.unwrap();
    tree.hints().task_cancelled(id);
    stopped.acquire().await.unwrap().forget();
    tree.drain(Duration::from_secs(5)).await.unwrap();
    assert_eq!(world.task(id).await.task.status, TaskStatus::Cancelled);
}

#[tokio::test]
async fn what_a_dead_node_held_is_run_by_another() {
    let world = World::new().await;
    let id = world.add(task("mail")).await;
    let dead = ClaimRequest {
        node: NodeId::generate(),
        lease: Duration::from_secs(30),
        wants: vec![Want { topic: "mail".parse().unwrap(), slots: 1 }],
        suspects: Suspects::Any,
    };
    assert_eq!(world.store.claim(&dead).await.unwrap().len(), 1);
    let tree = world.start(Handlers::default()).await;
    let other = world.add(task("other")).await;
    tree.hints().tasks_written();
    world.until(other, TaskStatus::Completed).await;
    assert_eq!(world.task(id).await.task.status, TaskStatus::Running);
    world.clock.advance(TimeDelta::seconds(30));
    let done = world.until(id, TaskStatus::Completed).await;
    let outcomes: Vec<_> = done.attempts.iter().map(|attempt| attempt.outcome.unwrap()).collect();
    assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Completed]);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_short_lease_of_somebody_outside_is_put_right_when_it_ends() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    // The Reconciler has looked twice, which the second time prunes, and sleeps for longer than the lease will last.
    let old = world.add(task("other")).await;
    tree.hints().tasks_written();
    world.until(old, TaskStatus::Completed).await;
    world.clock.advance(TimeDelta::days(31));
    eventually(|| async { world.store.task(old).await.unwrap().is_none().then_some(()) }).await;
    world.store.put_topic(&TopicDefinition::new("pull".parse().unwrap(), Route::Pull)).await.unwrap();
    let id = world.add(task("pull")).await;
    let topic = PullTopic { topic: "pull".parse().unwrap(), concurrency: 1, rate_per_second: None };
    let request = PullRequest { node: NodeId::generate(), lease_seconds: 1, topics: vec![topic], max: 1, max_bytes: 1 };
    world.store.pull(&request, None).await.unwrap();
    tree.hints().lease_made(request.lease());
    eventually(|| async {
        world.clock.advance(TimeDelta::milliseconds(1));
        (world.task(id).await.task.status == TaskStatus::Pending).then_some(())
    })
    .await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn whoever_waits_outside_hears_what_the_tree_is_told() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    tree.overhear(move |overheard| drop(told.send(overheard.clone())));
    let at = "2030-01-01T00:00:00Z".parse().unwrap();
    tree.hints().tasks_written();
    tree.hints().task_written("mail".parse().unwrap(), at);
    tree.hints().topics_changed();
    for expected in [Overheard::Tasks, Overheard::Task("mail".parse().unwrap(), at), Overheard::Topics] {
        assert_eq!(heard.recv().await, Some(expected));
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_paused_topic_waits_and_goes_on_when_it_is_resumed() {
    let world = World::new().await;
    let mut definition = TopicDefinition::new("paused".parse().unwrap(), Route::Event);
    definition.paused = true;
    world.store.put_topic(&definition).await.unwrap();
    let tree = world.start(Handlers::default()).await;
    let id = world.add(task("paused")).await;
    let other = world.add(task("other")).await;
    tree.hints().tasks_written();
    world.until(other, TaskStatus::Completed).await;
    assert_eq!(world.task(id).await.task.status, TaskStatus::Pending);
    definition.paused = false;
    world.store.put_topic(&definition).await.unwrap();
    tree.hints().topics_changed();
    world.until(id, TaskStatus::Completed).await;
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn tasks_of_one_serial_key_run_one_at_a_time_in_order() {
    let world = World::new().await;
    let order = Arc::new(Mutex::new(Vec::new()));
    let notes = {
        let order = order.clone();
        does(move |attempt| {
            let order = order.clone();
            async move {
                order.lock().unwrap().push(TaskId(attempt.task_id));
                Outcome::completed()
            }
        })
    };
    let tree = world.start(Handlers::default().with("serial", notes)).await;
    let tasks: Vec<_> = (0..20).map(|_| NewTask { serial_key: Some("k".into()), ..task("serial") }).collect();
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    world.store.create_tasks(tasks, None).await.unwrap();
    tree.hints().tasks_written();
    for id in &ids {
        world.until(*id, TaskStatus::Completed).await;
    }
    assert_eq!(*order.lock().unwrap(), ids);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn the_credit_of_idle_topics_hides_nobody_elses_tasks() {
    let world = World::new().await;
    let settings = Settings { max_tasks_per_poll: 10, ..Settings::default() };
    let tree = world.start_with(Handlers::default(), settings).await;
    for round in 0..2 {
        let tasks: Vec<_> = (0..30).map(|topic| task(&format!("topic-{topic}"))).collect();
        let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
        world.store.create_tasks(tasks, None).await.unwrap();
        tree.hints().tasks_written();
        for id in ids {
            world.until(id, TaskStatus::Completed).await;
        }
        // Thirty topics with fifty free slots each, and a cap of ten.
        let status = tree.status().await;
        let dispatchers = status.iter().filter(|actor| actor.name.starts_with("dispatcher")).count();
        assert_eq!(dispatchers, 30, "round {round}");
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn tasks_that_have_lost_an_attempt_run_one_at_a_time() {
    let world = World::new().await;
    let tasks: Vec<_> = (0..5).map(|_| task("suspect")).collect();
    let ids: Vec<_> = tasks.iter().map(|task| task.id).collect();
    world.store.create_tasks(tasks, None).await.unwrap();
    let dead = ClaimRequest {
        node: NodeId::generate(),
        lease: Duration::from_secs(1),
        wants: vec![Want { topic: "suspect".parse().unwrap(), slots: 5 }],
        suspects: Suspects::Any,
    };
    assert_eq!(world.store.claim(&dead).await.unwrap().len(), 5);
    world.clock.advance(TimeDelta::seconds(1));
    let (now, most) = (Arc::new(AtomicU32::new(0)), Arc::new(AtomicU32::new(0)));
    let counts = {
        let (now, most) = (now.clone(), most.clone());
        does(move |_| {
            let (now, most) = (now.clone(), most.clone());
            async move {
                most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::task::yield_now().await;
                now.fetch_sub(1, Ordering::SeqCst);
                Outcome::completed()
            }
        })
    };
    let tree = world.start(Handlers::default().with("suspect", counts)).await;
    for id in ids {
        world.until(id, TaskStatus::Completed).await;
    }
    assert_eq!(most.load(Ordering::SeqCst), 1);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn a_dispatcher_with_nothing_to_do_ends_and_its_topic_is_served_again() {
    let world = World::new().await;
    let settings = Settings {
        idle_dispatcher: Duration::from_millis(1),
        heartbeat: Duration::from_millis(40),
        ..Settings::default()
    };
    let tree = world.start_with(Handlers::default(), settings).await;
    for _ in 0..3 {
        let id = world.add(task("seldom")).await;
        tree.hints().tasks_written();
        world.until(id, TaskStatus::Completed).await;
        let is_idle = async || tree.status().await.iter().all(|actor| !actor.name.starts_with("dispatcher"));
        eventually(|| async { is_idle().await.then_some(()) }).await;
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn an_attempt_whose_lease_was_lost_is_stopped_and_its_outcome_changes_nothing() {
    let world = World::new().await;
    let (begun, stopped) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    let waits = {
        let (begun, stopped) = (begun.clone(), stopped.clone());
        does(move |attempt| {
            let (begun, stopped) = (begun.clone(), stopped.clone());
            async move {
                if attempt.number == 1 {
                    begun.add_permits(1);
                    attempt.cancelled.cancelled().await;
                    stopped.add_permits(1);
                    return Outcome::completed_with("too late");
                }
                Outcome::completed_with("second")
            }
        })
    };
    let settings = Settings { heartbeat: Duration::from_millis(100), ..Settings::default() };
    let tree = world.start_with(Handlers::default().with("waits", waits), settings).await;
    let id = world.add(task("waits")).await;
    tree.hints().tasks_written();
    // One that had not begun would not be begun any more.
    begun.acquire().await.unwrap().forget();
    // Somebody else's Reconciler frees it behind this node's back.
    world.clock.advance(TimeDelta::seconds(30));
    let done = world.until(id, TaskStatus::Completed).await;
    stopped.acquire().await.unwrap().forget();
    assert_eq!(done.task.result.unwrap().as_str(), "\"second\"");
    let outcomes: Vec<_> = done.attempts.iter().map(|attempt| attempt.outcome.unwrap()).collect();
    assert_eq!(outcomes, [AttemptOutcome::Lost, AttemptOutcome::Completed]);
    tree.drain(Duration::from_secs(5)).await.unwrap();
}

#[tokio::test]
async fn every_actor_tells_how_many_messages_wait_for_it() {
    let world = World::new().await;
    let tree = world.start(Handlers::default()).await;
    let once = task("once");
    let id = once.id;
    world.store.create_tasks(vec![once], None).await.unwrap();
    tree.hints().tasks_written();
    world.until(id, TaskStatus::Completed).await;
    let status = tree.hints().actors().await;
    let names: Vec<_> = status.iter().map(|actor| actor.name.as_str()).collect();
    assert_eq!(
        names,
        ["supervisor", "settler", "claimer", "reconciler", "ticker", "elector", "notifier", "dispatcher once"]
    );
    assert!(status.iter().all(|actor| actor.mailbox.is_some() && actor.restarts == 0), "{status:?}");
    tree.drain(Duration::from_secs(5)).await.unwrap();
}
