//! Retention, and what the gauges show.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::id::{MessageId, ScheduleId};
use punctual_domain::json::Json;
use punctual_domain::outbox::{NewMessage, Sending};
use punctual_domain::schedule::MisfirePolicy;
use punctual_domain::store::{Answer, Counts, Depth, EventCursor, FireFilter, Page, Pruned, Remember, TaskFilter};
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::{Route, TopicDefinition};

use crate::support::*;

const DAY: Duration = Duration::from_secs(86_400);

/// Prunes until nothing is left to prune, and adds up.
async fn prune_all(world: &World, keep: Duration) -> Pruned {
    let mut sum = Pruned::default();
    loop {
        let pruned = world.prune(keep, 1000).await.unwrap();
        if pruned == Pruned::default() {
            return sum;
        }
        sum.tasks += pruned.tasks;
        sum.fires += pruned.fires;
        sum.messages += pruned.messages;
        sum.answers += pruned.answers;
    }
}

async fn keep_for(world: &World, name: &str, days: Option<u32>) {
    let definition = TopicDefinition::new(name.parse().unwrap(), Route::Event);
    world.put_topic(&TopicDefinition { retention_days: days, ..definition }).await.unwrap();
}

async fn post(world: &World, key: &str) {
    let new = NewMessage {
        id: MessageId::generate(),
        dedupe_key: key.into(),
        transport: "log".into(),
        recipient: "somebody".into(),
        body: Json::empty_object(),
    };
    world.post(vec![new]).await.unwrap();
}

pub(crate) async fn an_ended_task_is_kept_as_long_as_asked_and_no_longer(world: World) {
    for status in [TaskStatus::Completed, TaskStatus::Failed, TaskStatus::Cancelled] {
        world.ended(task("mail"), status).await;
    }
    world.advance(TimeDelta::days(1));
    assert_eq!(prune_all(&world, DAY).await.tasks, 0);
    world.advance(TimeDelta::microseconds(1));
    assert_eq!(prune_all(&world, DAY).await.tasks, 3);
    assert_eq!(world.list(TaskFilter::default()).await, []);
}

pub(crate) async fn the_end_of_a_task_counts_not_its_beginning(world: World) {
    let running = world.running(task("mail").at(world.in_secs(-999_999))).await;
    world.advance(TimeDelta::days(9));
    let ended = world.settle_now(&running, completed()).await;
    assert_eq!(prune_all(&world, DAY).await.tasks, 0);
    assert_eq!(world.read(ended.id).await, ended);
}

pub(crate) async fn live_tasks_are_never_pruned(world: World) {
    let running = world.running(task("mail")).await;
    let retried = world.settle_now(&running, retried(0)).await;
    let running = world.running(task("print")).await;
    let pending = world.add(task("later").in_secs(1)).await;
    world.advance(TimeDelta::days(400));
    assert_eq!(prune_all(&world, Duration::ZERO).await, Pruned::default());
    for task in [retried, running, pending] {
        assert_eq!(world.read(task.id).await, task);
    }
    assert_eq!(world.database.count("punctual_attempts").await, 1);
}

pub(crate) async fn attempts_go_with_their_task(world: World) {
    let running = world.running(task("mail")).await;
    world.settle_now(&running, retried(0)).await;
    let running = world.claim_one("mail").await;
    world.settle_now(&running, completed()).await;
    world.advance(TimeDelta::days(2));
    assert_eq!(prune_all(&world, DAY).await.tasks, 1);
    assert_eq!(world.task(running.id).await, Ok(None));
    assert_eq!(world.database.count("punctual_attempts").await, 0);
}

pub(crate) async fn no_more_is_removed_at_once_than_asked_for(world: World) {
    world.add_all((0..25).map(|_| task("mail"))).await;
    world.cancel_matching(&TaskFilter::default(), punctual_domain::store::Bulk::Apply).await.unwrap();
    world.advance(TimeDelta::days(2));
    for tasks in [10, 10, 5, 0] {
        assert_eq!(world.prune(DAY, 10).await, Ok(Pruned { tasks, ..Default::default() }));
    }
}

pub(crate) async fn a_topic_may_keep_its_tasks_for_less_or_more(world: World) {
    keep_for(&world, "short.*", Some(1)).await;
    keep_for(&world, "long", Some(90)).await;
    for topic in ["short.mail", "shorter", "long", "long.mail", "mail"] {
        world.ended(task(topic), TaskStatus::Completed).await;
    }
    let left = async || -> Vec<String> {
        world.list(TaskFilter::default()).await.iter().rev().map(|task| task.topic.to_string()).collect()
    };
    world.advance(TimeDelta::days(2));
    prune_all(&world, DAY * 30).await;
    assert_eq!(left().await, ["shorter", "long", "long.mail", "mail"]);
    world.advance(TimeDelta::days(40));
    prune_all(&world, DAY * 30).await;
    assert_eq!(left().await, ["long"]);
    world.advance(TimeDelta::days(50));
    prune_all(&world, DAY * 30).await;
    assert_eq!(left().await, [""; 0]);
}

pub(crate) async fn the_longest_match_says_how_long_tasks_are_kept(world: World) {
    keep_for(&world, "a.*", Some(1)).await;
    keep_for(&world, "a.b.*", Some(90)).await;
    keep_for(&world, "a.b.c", Some(1)).await;
    // Says nothing about it, so the rest's days apply.
    keep_for(&world, "a.d", None).await;
    for topic in ["a.x", "a.b.x", "a.b.c", "a.d"] {
        world.ended(task(topic), TaskStatus::Completed).await;
    }
    world.advance(TimeDelta::days(2));
    assert_eq!(prune_all(&world, DAY * 30).await.tasks, 2);
    let left = world.list(TaskFilter::default()).await;
    assert_eq!(left.iter().map(|task| task.topic.as_str()).collect::<Vec<_>>(), ["a.d", "a.b.x"]);
}

pub(crate) async fn fires_are_pruned_and_their_schedule_stays(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    world.advance_secs(60);
    world.tick_by_the_rules().await;
    world.settle_now(&world.claim_one("report").await, completed()).await;
    let before = world.schedule(schedule.id).await;
    assert_eq!(prune_all(&world, DAY).await, Pruned::default());
    world.advance(TimeDelta::days(2));
    assert_eq!(prune_all(&world, DAY).await, Pruned { tasks: 1, fires: 2, ..Default::default() });
    assert_eq!(world.fires(schedule.id, &FireFilter::default(), Page::first(9)).await, Ok(vec![]));
    assert_eq!(world.schedule(schedule.id).await, before);
}

pub(crate) async fn a_fire_stays_as_long_as_its_task_lives(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    let running = world.claim_one("report").await;
    world.advance(TimeDelta::days(2));
    assert_eq!(prune_all(&world, DAY).await, Pruned::default());
    assert_eq!(world.fires(schedule.id, &FireFilter::default(), Page::first(9)).await.unwrap().len(), 1);
    world.settle_now(&running, completed()).await;
    assert_eq!(prune_all(&world, DAY).await, Pruned { fires: 1, ..Default::default() });
}

pub(crate) async fn sent_messages_are_pruned_and_the_others_stay(world: World) {
    for key in ["sent", "failed", "pending"] {
        post(&world, key).await;
    }
    for taken in world.take_messages("log", LEASE, 9).await.unwrap() {
        let sending = match taken.dedupe_key.as_str() {
            "sent" => Sending::Sent { provider_id: "provider".into() },
            "failed" => Sending::Failed { error: "no".into() },
            _ => continue,
        };
        world.record_sending(taken.id, taken.epoch, &sending).await.unwrap();
    }
    world.advance(TimeDelta::days(2));
    assert_eq!(prune_all(&world, DAY * 3).await, Pruned::default());
    assert_eq!(prune_all(&world, DAY).await, Pruned { messages: 1, ..Default::default() });
    assert_eq!(world.messages(None, Page::first(9)).await.unwrap().len(), 2);
}

pub(crate) async fn answers_are_pruned_after_24_hours_whatever_else_is_kept(world: World) {
    for key in ["a", "b", "c"] {
        let remember = Remember {
            owner: "me".into(),
            key: key.into(),
            fingerprint: "f".into(),
            answer: Box::new(|_| Answer { status: 201, body: "{}".into() }),
        };
        world.create_tasks(vec![task("mail").build()], Some(remember)).await.unwrap();
        world.advance(TimeDelta::hours(10));
    }
    // They are 30, 20 and 10 hours old.
    assert_eq!(world.prune(DAY * 365, 100).await, Ok(Pruned { answers: 1, ..Default::default() }));
    assert_eq!(world.database.count("punctual_answers").await, 2);
}

pub(crate) async fn the_gauges_of_an_empty_store_show_nothing(world: World) {
    assert_eq!(world.counts().await, Ok(Counts::default()));
}

pub(crate) async fn the_gauges_count_what_is_due_by_topic_and_origin(world: World) {
    world.add_all((0..3).map(|_| task("mail"))).await;
    world.add(task("mail").of_schedule(ScheduleId::generate(), world.now())).await;
    world.add(task("print")).await;
    world.add(task("mail").in_secs(60)).await;
    world.running(task("running")).await;
    world.ended(task("ended"), TaskStatus::Failed).await;
    let mut counts = world.counts().await.unwrap();
    counts.due.sort_by(|a, b| (&a.topic, a.of_schedules).cmp(&(&b.topic, b.of_schedules)));
    let depth = |topic: &str, of_schedules, tasks| Depth { topic: topic.into(), of_schedules, tasks };
    assert_eq!(counts.due, [depth("mail", false, 3), depth("mail", true, 1), depth("print", false, 1)]);
    assert_eq!(counts.running, 1);
}

pub(crate) async fn the_load_of_topics_is_what_is_due_and_what_runs(world: World) {
    assert_eq!(world.loads().await, Ok(Vec::new()));
    world.running(task("mail")).await;
    world.running(task("resize")).await;
    world.ended(task("ended"), TaskStatus::Failed).await;
    let since = world.now();
    world.add(task("mail")).await;
    world.advance_secs(20);
    world.add(task("mail")).await;
    world.add(task("print").in_secs(60)).await;
    let loads = world.loads().await.unwrap();
    let [mail, resize] = &loads[..] else { panic!("{loads:?}") };
    assert_eq!((mail.topic.as_str(), mail.due, mail.due_since, mail.running), ("mail", 2, Some(since), 1));
    assert_eq!((resize.topic.as_str(), resize.due, resize.due_since, resize.running), ("resize", 0, None, 1));
}

pub(crate) async fn the_gauges_count_schedules_and_how_far_they_lag(world: World) {
    world.every_minute("one").await;
    world.every_minute("two").await;
    let mut paused = world.unwritten("paused");
    paused.enabled = false;
    paused.next_fire_at = None;
    world.create_schedule(&paused).await.unwrap();
    world.advance_secs(59);
    let counts = world.counts().await.unwrap();
    assert_eq!((counts.schedules, counts.schedule_lag), (2, Duration::ZERO));
    world.advance(TimeDelta::milliseconds(8_500));
    assert_eq!(world.counts().await.unwrap().schedule_lag, Duration::from_millis(7_500));
    world.tick_by_the_rules().await;
    assert_eq!(world.counts().await.unwrap().schedule_lag, Duration::ZERO);
}

pub(crate) async fn the_gauges_count_messages_that_wait(world: World) {
    for key in ["a", "b", "c"] {
        post(&world, key).await;
    }
    let taken = world.take_messages("log", LEASE, 9).await.unwrap();
    let sending = [Sending::Sent { provider_id: "provider".into() }, Sending::Failed { error: "no".into() }];
    for (message, sending) in taken.iter().zip(&sending) {
        world.record_sending(message.id, message.epoch, sending).await.unwrap();
    }
    assert_eq!(world.counts().await.unwrap().outbox, 1);
}

pub(crate) async fn upkeep_on_the_databases_own_clock(world: World) {
    let world = world.reopen_on_the_databases_clock().await;
    let before = world.store.now().await.unwrap();
    let ended = world.ended(task("mail"), TaskStatus::Completed).await;
    world.add(task("mail")).await;
    assert_eq!(world.prune(DAY, 10).await, Ok(Pruned::default()));
    assert_eq!(world.counts().await.unwrap().due.len(), 1);
    let events = world.events(&EventCursor::since(before - TimeDelta::seconds(1)), 10).await.unwrap();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| event.task == ended));
}

pub(crate) async fn a_skipped_fire_is_pruned_like_any_other(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.misfire_policy = MisfirePolicy::Skip;
    world.create_schedule(&schedule).await.unwrap();
    world.advance_secs(119);
    assert_eq!(world.tick_by_the_rules().await.skipped, 1);
    world.advance(TimeDelta::days(2));
    assert_eq!(prune_all(&world, DAY).await.fires, 1);
}
