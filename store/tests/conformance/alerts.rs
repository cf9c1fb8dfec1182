//! Alerts: signs are counted over the last hour on all nodes, and each cause is told once an hour, with its messages or not
//! at all.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::alert::{Cause, Ends, Signs, Stuck};
use punctual_domain::id::{MessageId, NodeId};
use punctual_domain::json::Json;
use punctual_domain::outbox::{NewMessage, Sending};
use punctual_domain::store::Page;

use crate::support::*;

const HOUR: Duration = Duration::from_secs(3600);

fn message(key: &str) -> NewMessage {
    NewMessage {
        id: MessageId::generate(),
        dedupe_key: key.into(),
        transport: "smtp".into(),
        recipient: "admin@example.com".into(),
        body: Json::empty_object(),
    }
}

/// The keys of all messages, oldest first.
async fn posted(world: &World) -> Vec<String> {
    let mut messages = world.messages(None, Page::first(100)).await.unwrap();
    messages.reverse();
    messages.into_iter().map(|message| message.dedupe_key).collect()
}

pub(crate) async fn where_all_is_well_there_are_no_signs(world: World) {
    assert_eq!(world.signs().await, Ok(Signs::default()));
    for _ in 0..5 {
        world.settle_now(&world.running(task("mail")).await, completed()).await;
    }
    world.every_minute("nightly").await;
    world.post(vec![message("fresh")]).await.unwrap();
    assert_eq!(world.signs().await, Ok(Signs::default()));
}

pub(crate) async fn a_cause_is_told_once_an_hour_with_its_messages(world: World) {
    let raise = |cause, key: &str| world.raise(cause, HOUR, vec![message(key), message(&format!("{key}, webhook"))]);
    assert_eq!(raise(Cause::MissedFire, "first").await, Ok(true));
    assert_eq!(raise(Cause::MissedFire, "too soon").await, Ok(false));
    assert_eq!(raise(Cause::OutboxStuck, "another").await, Ok(true));
    world.advance(TimeDelta::hours(1) - TimeDelta::microseconds(1));
    assert_eq!(raise(Cause::MissedFire, "still too soon").await, Ok(false));
    world.advance(TimeDelta::microseconds(1));
    assert_eq!(raise(Cause::MissedFire, "second").await, Ok(true));
    assert_eq!(world.raise(Cause::LeaderFlapping, HOUR, vec![]).await, Ok(true));
    assert_eq!(world.raise(Cause::LeaderFlapping, HOUR, vec![message("late")]).await, Ok(false));
    let expected = ["first", "first, webhook", "another", "another, webhook", "second", "second, webhook"];
    assert_eq!(posted(&world).await, expected);
}

pub(crate) async fn of_eight_nodes_that_raise_one_cause_one_does(world: World) {
    for _ in 0..3 {
        let raised = side_by_side(world.eight_nodes().await, |node| async move {
            node.raise(Cause::FailedExecutions, HOUR, vec![message(&node.id.to_string())]).await.unwrap()
        })
        .await;
        assert_eq!(raised.into_iter().filter(|raised| *raised).count(), 1);
        world.advance(TimeDelta::hours(1));
    }
    assert_eq!(posted(&world).await.len(), 3);
}

pub(crate) async fn a_cause_that_a_wrong_clock_noted_far_ahead_is_told(world: World) {
    world.advance(TimeDelta::days(365));
    assert_eq!(world.raise(Cause::MissedFire, HOUR, vec![]).await, Ok(true));
    world.advance(TimeDelta::days(-365));
    let world = world.reopen().await;
    assert_eq!(world.raise(Cause::MissedFire, HOUR, vec![]).await, Ok(true));
    // One that is a little ahead was noted in the same moment.
    world.advance(TimeDelta::minutes(-1));
    let world = world.reopen().await;
    assert_eq!(world.raise(Cause::MissedFire, HOUR, vec![]).await, Ok(false));
}

pub(crate) async fn missed_fires_of_the_last_hour_are_signs(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(91);
    let noted = world.note_missed(Duration::from_secs(30), 10).await.unwrap();
    assert_eq!(noted.iter().map(|missed| missed.schedule_id).collect::<Vec<_>>(), [schedule.id]);
    world.advance(TimeDelta::hours(1) - TimeDelta::microseconds(1));
    assert_eq!(world.signs().await.unwrap().missed, noted);
    world.advance(TimeDelta::microseconds(1));
    assert_eq!(world.signs().await, Ok(Signs::default()));
}

pub(crate) async fn ends_of_the_last_hour_are_counted_by_who_made_the_task_once_several_failed(world: World) {
    let schedule = world.every_minute("nightly").await;
    let of_schedule = || task("report").of_schedule(schedule.id, world.now());
    let end = async |new, settlement| world.settle_now(&world.running(new).await, settlement).await;
    // Too long ago.
    end(task("mail"), failed("no")).await;
    world.advance(TimeDelta::hours(1));
    end(of_schedule(), failed("no")).await;
    end(task("mail"), failed("no")).await;
    for _ in 0..4 {
        end(task("mail"), completed()).await;
    }
    end(of_schedule(), completed()).await;
    let cancelled = world.add(task("mail")).await;
    world.cancel(cancelled.id).await.unwrap();
    assert_eq!(world.signs().await, Ok(Signs::default()), "two are too few to look closer");
    end(of_schedule(), failed("no")).await;
    let expected = Signs {
        of_schedules: Ends { completed: 1, failed: 2 },
        of_callers: Ends { completed: 4, failed: 1 },
        ..Signs::default()
    };
    assert_eq!(world.signs().await, Ok(expected));
}

pub(crate) async fn messages_that_wait_for_half_an_hour_are_signs(world: World) {
    let [sent, failed, put_off] = ["sent", "failed", "put off"].map(message);
    let (written_at, put_off_id, failed_id) = (world.now(), put_off.id, failed.id);
    world.post(vec![sent, failed, put_off]).await.unwrap();
    for taken in world.take_messages("smtp", LEASE, 9).await.unwrap() {
        let sending = match taken.dedupe_key.as_str() {
            "sent" => Sending::Sent { provider_id: "1".into() },
            "failed" => Sending::Failed { error: "no".into() },
            _ => Sending::Retried { error: "busy".into(), after: Duration::from_secs(3000) },
        };
        assert_eq!(world.record_sending(taken.id, taken.epoch, &sending).await, Ok(true));
    }
    world.advance(TimeDelta::minutes(30) - TimeDelta::microseconds(1));
    world.post(vec![message("fresh")]).await.unwrap();
    assert_eq!(world.signs().await.unwrap().stuck, None);
    world.advance(TimeDelta::microseconds(1));
    let stuck = |messages| Some(Stuck { messages, since: written_at });
    assert_eq!(world.signs().await.unwrap().stuck, stuck(1));
    // One that somebody retried waits since then.
    assert_eq!(world.retry_message(failed_id).await, Ok(true));
    assert_eq!(world.signs().await.unwrap().stuck, stuck(1));
    world.advance(TimeDelta::minutes(30));
    assert_eq!(world.signs().await.unwrap().stuck, stuck(3));
    assert!(world.message(put_off_id).await.unwrap().is_some());
}

pub(crate) async fn changes_of_the_leader_are_counted_on_all_nodes_together(world: World) {
    world.note_leader(NodeId::generate()).await.unwrap();
    world.advance(TimeDelta::minutes(30));
    side_by_side(world.eight_nodes().await, |node| async move { node.note_leader(node.id).await.unwrap() }).await;
    assert_eq!(world.signs().await.unwrap().leader_changes, 9);
    world.advance(TimeDelta::minutes(30));
    assert_eq!(world.signs().await.unwrap().leader_changes, 8);
    world.advance(TimeDelta::days(2));
    world.prune(Duration::from_secs(86_400), 3).await.unwrap();
    assert_eq!(world.database.count("punctual_leader_changes").await, 6);
}

pub(crate) async fn alerts_on_the_databases_own_clock(world: World) {
    let world = world.reopen_on_the_databases_clock().await;
    world.note_leader(world.id).await.unwrap();
    for _ in 0..3 {
        world.settle_now(&world.running(task("mail")).await, failed("no")).await;
    }
    let expected = Signs { of_callers: Ends { completed: 0, failed: 3 }, leader_changes: 1, ..Signs::default() };
    assert_eq!(world.signs().await, Ok(expected));
    assert_eq!(world.raise(Cause::MissedFire, HOUR, vec![message("first")]).await, Ok(true));
    assert_eq!(world.raise(Cause::MissedFire, HOUR, vec![message("second")]).await, Ok(false));
    assert_eq!(posted(&world).await, ["first"]);
}
