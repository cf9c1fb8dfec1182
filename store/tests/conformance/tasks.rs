//! Writing tasks and reading them back.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::retry::{Backoff, Growth, MAX_ATTEMPTS, RetryPolicy};
use punctual_domain::store::{Created, Creation, StoreError, TaskFilter};
use punctual_domain::task::{Due, FireOfTask, MAX_PAYLOAD_BYTES, MAX_TIMEOUT_SECONDS, NewTask};

use crate::support::*;

pub(crate) async fn a_task_can_be_read_back(world: World) {
    let new = task("mail").build();
    let expected = written(new.clone(), world.now());
    assert_eq!(world.create(new).await, Ok(Created::Fresh(expected.clone())));
    let read = world.task(expected.id).await.unwrap().unwrap();
    assert_eq!((read.task, read.attempts), (expected, vec![]));
}

pub(crate) async fn every_field_comes_back(world: World) {
    let new = NewTask {
        id: TaskId::generate(),
        topic: topic("A-1_b.reminder.early"),
        due: Due::At("2031-12-31T23:59:59.999999Z".parse().unwrap()),
        timezone: "America/Argentina/ComodRivadavia".into(),
        payload: Json::parse(r#"{"grüße":["🎉",1.0,null]}"#).unwrap(),
        metadata: map([("ownerId", "søren"), ("tenantId", "租户"), ("correlationId", "👩‍👩‍👧‍👦"), ("x", "")]),
        client_request_id: Some("request \u{1F4E8}".into()),
        dedupe_key: Some("dedupe 'quoted' \"twice\"".into()),
        serial_key: Some("serial\n\t\\line".into()),
        priority: -7,
        timeout_seconds: 42,
        retry: RetryPolicy {
            attempts: 5,
            backoff: Backoff { growth: Growth::Fixed, delay: 1, max_delay: 31_536_000_000, jitter: 0.123_456_789 },
        },
        fire: Some(FireOfTask {
            schedule_id: ScheduleId::generate(),
            scheduled_at: "2031-12-31T23:59:00.000001Z".parse().unwrap(),
        }),
        retry_of: Some(TaskId::generate()),
        rescheduled_from: Some(TaskId::generate()),
    };
    let expected = written(new.clone(), world.now());
    assert_eq!(world.add(new).await, expected);
    assert_eq!(world.read(expected.id).await, expected);
    assert_eq!(world.list(TaskFilter::default()).await, [expected]);
}

pub(crate) async fn an_ended_task_keeps_every_field(world: World) {
    let new = task("mail")
        .payload(r#"{"n":1.50}"#)
        .owner("søren")
        .client_request_id("c")
        .dedupe_key("d")
        .serial_key("s")
        .priority(9)
        .attempts(4)
        .of_schedule(ScheduleId::generate(), world.now())
        .build();
    let claimed = written(new.clone(), world.now()).claim(world.id, LEASE, world.now()).unwrap();
    world.running(new).await;
    world.advance_secs(1);
    let expected = claimed.clone().settle(claimed.epoch, &completed(), world.now()).unwrap();
    assert_eq!(world.settle_now(&claimed, completed()).await, expected);
}

pub(crate) async fn every_kind_of_payload_comes_back_letter_for_letter(world: World) {
    let payloads = [
        "null",
        "true",
        "\"\"",
        "0",
        "-0.0",
        "[]",
        "{}",
        " { \"b\" : 1,\n\t\"a\": [ ] } ",
        "-1.50e+2",
        "123456789012345678901234567890.000100",
        r#""\u00e9 \ud83c\udf89 é 🎉""#,
        r#""a backslash before u0000: \\u0000""#,
        r#"{"$1":"?1 :a {} %s '; DROP TABLE punctual_tasks; --"}"#,
    ];
    for text in payloads {
        let id = world.add(task("mail").payload(text)).await.id;
        assert_eq!(world.read(id).await.payload.as_str(), text);
    }
}

pub(crate) async fn a_payload_of_a_mebibyte_comes_back(world: World) {
    let text = format!("\"{}\"", "ü".repeat(MAX_PAYLOAD_BYTES / 2 - 1));
    assert_eq!(text.len(), MAX_PAYLOAD_BYTES);
    let id = world.add(task("mail").payload(&text)).await.id;
    assert!(world.read(id).await.payload.as_str() == text);
    assert!(world.claim_one("mail").await.payload.as_str() == text);
}

pub(crate) async fn the_bounds_of_every_number_come_back(world: World) {
    for (priority, timeout_seconds, attempts) in [(-100, 1, 1), (100, MAX_TIMEOUT_SECONDS, MAX_ATTEMPTS)] {
        let new = NewTask { timeout_seconds, ..task("mail").priority(priority).attempts(attempts).build() };
        let expected = written(new.clone(), world.now());
        assert_eq!(world.add(new).await, expected);
        assert_eq!(world.read(expected.id).await, expected);
    }
}

pub(crate) async fn keys_of_two_hundred_characters_come_back(world: World) {
    let key = "🎉".repeat(200);
    let new = task("mail").client_request_id(&key).dedupe_key(&key).serial_key(&key).build();
    assert_eq!(new.validate(), Ok(()));
    let expected = written(new.clone(), world.now());
    world.add(new).await;
    assert_eq!(world.read(expected.id).await, expected);
}

pub(crate) async fn the_character_nul_never_reaches_the_store(world: World) {
    assert!(Json::parse(r#"{"a":"\u0000"}"#).is_err());
    for bad in [
        task("mail").client_request_id("a\0b"),
        task("mail").dedupe_key("a\0b"),
        task("mail").serial_key("a\0b"),
        task("mail").metadata("a\0b", "v"),
        task("mail").metadata("k", "a\0b"),
    ] {
        assert!(bad.build().validate().is_err());
    }
    // A handler's own words are not refused but mended.
    let running = world.running(task("mail")).await;
    let settlement = running.decide(punctual_domain::Outcome::failed("a\0b"), 0.5);
    assert_eq!(world.settle_now(&running, settlement).await.error.as_deref(), Some("a\u{fffd}b"));
}

pub(crate) async fn the_stores_clock_says_when_a_task_is_due_and_was_written(world: World) {
    let now = world.now();
    let past: DateTime<Utc> = "1970-01-01T00:00:00.000001Z".parse().unwrap();
    let future: DateTime<Utc> = "9999-12-31T23:59:59.999999Z".parse().unwrap();
    let delay = Duration::from_micros(1_500_001);
    for (due, run_at) in [
        (Due::Now, now),
        (Due::After(delay), now + delay),
        (Due::After(Duration::ZERO), now),
        (Due::At(past), past),
        (Due::At(future), future),
    ] {
        let task = world.add(NewTask { due, ..task("mail").build() }).await;
        assert_eq!((task.run_at, task.created_at), (run_at, now), "{due:?}");
        assert_eq!(world.read(task.id).await.run_at, run_at, "{due:?}");
    }
}

pub(crate) async fn instants_keep_their_microseconds(world: World) {
    world.advance(TimeDelta::microseconds(123_457));
    let running = world.running(task("mail")).await;
    assert_eq!(running.created_at.timestamp_subsec_micros(), 123_457);
    world.advance(TimeDelta::microseconds(1));
    let ended = world.settle_now(&running, completed()).await;
    assert_eq!(ended.started_at.unwrap().timestamp_subsec_micros(), 123_457);
    assert_eq!(ended.completed_at.unwrap().timestamp_subsec_micros(), 123_458);
}

pub(crate) async fn an_unknown_task_is_none(world: World) {
    assert_eq!(world.task(TaskId::generate()).await, Ok(None));
}

pub(crate) async fn ten_thousand_tasks_are_written_in_order(world: World) {
    let tasks: Vec<NewTask> = (0..10_000).map(|i| task("mail").payload(&i.to_string()).build()).collect();
    let expected: Vec<_> = tasks.iter().map(|new| Created::Fresh(written(new.clone(), world.now()))).collect();
    assert!(world.create_all(tasks).await.unwrap() == expected);
    assert_eq!(world.database.count("punctual_tasks").await, 10_000);
}

pub(crate) async fn a_batch_is_written_whole_or_not_at_all(world: World) {
    world.add(task("mail").client_request_id("used")).await;
    let mut batch: Vec<NewTask> = (0..2_000).map(|_| task("mail").build()).collect();
    batch.push(task("mail").client_request_id("used").build());
    let refused = Err(StoreError::ClientRequestIdInUse("used".into()));
    assert_eq!(world.create_all(batch).await, refused);
    assert_eq!(world.list(TaskFilter::default()).await.len(), 1);
}

pub(crate) async fn a_batch_of_nothing_makes_nothing(world: World) {
    assert_eq!(world.create_tasks(vec![], None).await, Ok(Creation::Made(vec![])));
}

pub(crate) async fn a_task_written_in_a_callers_transaction_is_there_once_it_commits(world: World) {
    let new = task("mail").in_secs(10).owner("o").dedupe_key("d").serial_key("s").client_request_id("c").build();
    let expected = written(new.clone(), world.now());
    world.insert_in_own_transaction(vec![new], End::Commit).await;
    assert_eq!(world.read(expected.id).await, expected);
    world.advance_secs(10);
    assert_eq!(world.claim_one("mail").await.id, expected.id);
}

pub(crate) async fn a_task_written_in_a_callers_transaction_never_was_if_it_rolls_back(world: World) {
    let new = task("mail").dedupe_key("d").client_request_id("c").build();
    world.insert_in_own_transaction(vec![new.clone(), task("mail").build()], End::RollBack).await;
    assert_eq!(world.list(TaskFilter::default()).await, []);
    // Its keys were never used either.
    world.add(new).await;
}

pub(crate) async fn what_was_written_is_there_after_a_restart(world: World) {
    let pending = world.add(task("mail").payload("[1.0]").owner("o")).await;
    let completed = world.ended(task("print"), punctual_domain::task::TaskStatus::Completed).await;
    let world = world.reopen().await;
    assert_eq!(world.read(pending.id).await, pending);
    assert_eq!(world.read(completed.id).await, completed);
}

pub(crate) async fn a_whole_life_on_the_databases_own_clock(world: World) {
    let world = world.reopen_on_the_databases_clock().await;
    let before = world.store.now().await.unwrap();
    world.add(task("later").in_secs(3600)).await;
    let added = world.add(task("mail").attempts(2)).await;
    assert!(before <= added.created_at && added.run_at == added.created_at);

    assert_eq!(world.claim_up_to(9, "later").await, []);
    let claimed = world.claim_one("mail").await;
    assert_eq!(claimed.lease.unwrap().expires_at, Some(claimed.started_at.unwrap() + LEASE));
    assert!(world.extend_one(&claimed, LEASE * 2).await.unwrap() > claimed.lease.unwrap().expires_at.unwrap());
    assert_eq!(world.expire(3, 10).await.unwrap(), Default::default());

    let waits = world.settle_now(&claimed, retried(0)).await;
    assert!(waits.run_at >= claimed.started_at.unwrap());
    let again = world.claim_one("mail").await;
    let ended = world.settle_now(&again, completed()).await;
    let after = world.store.now().await.unwrap();
    assert!(again.started_at <= ended.completed_at && ended.completed_at.unwrap() <= after);
    assert_eq!(world.attempts(ended.id).await.len(), 2);
}
