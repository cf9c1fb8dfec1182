//! What somebody sees who looks at everything at once.

use chrono::{DurationRound, TimeDelta};
use punctual_domain::fire::FireStatus;
use punctual_domain::json::Json;
use punctual_domain::store::{ComingTask, EndedMinute, Fired, FiredSchedule, TaskFilter};
use punctual_domain::task::TaskStatus;

use crate::support::*;

pub(crate) async fn the_newest_fires_of_many_schedules_come_at_once(world: World) {
    let (busy, quiet, none) =
        (world.every_minute("busy").await, world.every_minute("quiet").await, world.unwritten("none"));
    let mut triggered = Vec::new();
    for _ in 0..4 {
        world.advance_secs(1);
        triggered.push(world.trigger(busy.id).await.unwrap());
    }
    let only = world.trigger(quiet.id).await.unwrap();
    let claimed = world.claim_up_to(10, triggered[3].topic.as_str()).await;
    for task in claimed {
        let end = if task.id == triggered[3].id { failed(&"no ".repeat(1_000)) } else { completed() };
        world.settle_now(&task, end).await;
    }
    let fires = world.recent_fires(&[busy.id, quiet.id, none.id], 3).await.unwrap();
    let of = |id| fires.iter().filter(|fire| fire.schedule_id == id).collect::<Vec<_>>();
    let tasks: Vec<_> = of(busy.id).iter().map(|fire| fire.task.as_ref().unwrap().id).collect();
    assert_eq!(tasks, [triggered[3].id, triggered[2].id, triggered[1].id], "newest first, and no more than asked for");
    let newest = of(busy.id)[0];
    assert_eq!(newest.status(), Some(FireStatus::Task(TaskStatus::Failed)));
    let error = newest.task.as_ref().unwrap().error.clone().unwrap();
    assert_eq!((error.len(), &error[..5]), (300, "no no"), "the beginning of a long error");
    assert_eq!(of(quiet.id)[0].task.as_ref().unwrap().id, only.id);
    assert_eq!(fires.len(), 4);
    assert_eq!(world.recent_fires(&[], 3).await.unwrap(), []);
}

pub(crate) async fn schedules_come_in_the_order_in_which_they_fire_next(world: World) {
    for (name, seconds) in [("second", 20), ("first", 10), ("third", 30)] {
        let mut schedule = world.unwritten(name);
        schedule.next_fire_at = Some(world.in_secs(seconds));
        schedule.definition.payload = Json::from_stored(r#"{"much":"of it","few":1e-20000}"#);
        world.create_schedule(&schedule).await.unwrap();
    }
    let paused = world.unwritten("paused").paused(None, None);
    world.create_schedule(&paused).await.unwrap();
    world.advance_secs(15);
    let names = |found: Vec<punctual_domain::schedule::Schedule>| {
        found.into_iter().map(|schedule| schedule.definition.name).collect::<Vec<_>>()
    };
    let found = world.next_schedules(10).await.unwrap();
    assert!(found.iter().all(|schedule| schedule.definition.payload == Json::empty_object()), "without payloads");
    assert_eq!(names(found), ["first", "second", "third"], "what is overdue comes first");
    assert_eq!(names(world.next_schedules(2).await.unwrap()), ["first", "second"]);
}

pub(crate) async fn tasks_come_in_the_order_in_which_they_become_due(world: World) {
    let mut made = Vec::new();
    for (name, seconds) in [("second", 20), ("first", 10), ("third", 30), ("due", 0), ("much.later", 3_600)] {
        made.push(world.add(task(name).in_secs(seconds)).await.id);
    }
    world.running(task("running")).await;
    let coming = async |from: i64, to: i64, limit| {
        let found = world.coming_tasks(world.in_secs(from), world.in_secs(to), limit).await.unwrap();
        found.into_iter().map(|task| task.topic).collect::<Vec<_>>()
    };
    assert_eq!(coming(0, 60, 10).await, ["first", "second", "third"]);
    assert_eq!(coming(0, 60, 2).await, ["first", "second"]);
    assert_eq!(coming(10, 30, 10).await, ["second"], "neither of the ends");
    let found = world.coming_tasks(world.in_secs(0), world.in_secs(15), 10).await.unwrap();
    let (run_at, timezone) = (world.in_secs(10), "UTC".to_owned());
    assert_eq!(found, [ComingTask { task_id: made[1], topic: "first".into(), timezone, run_at }]);
}

pub(crate) async fn what_ended_is_counted_by_minute(world: World) {
    let minute = TimeDelta::minutes(1);
    let first = world.now().duration_trunc(minute).unwrap() + minute;
    world.clock.advance_to(first);
    world.ended(task("mail"), TaskStatus::Completed).await;
    world.ended(task("mail"), TaskStatus::Failed).await;
    world.clock.advance_to(first + minute * 2);
    let late = world.add(task("mail")).await;
    world.advance_secs(30);
    let claimed = world.claim_one("mail").await;
    assert_eq!(claimed.id, late.id);
    world.settle_now(&claimed, completed()).await;
    let minutes = world.ended_minutes(first, 4).await.unwrap();
    let told: Vec<_> =
        minutes.iter().map(|EndedMinute { at, ended, failed, .. }| ((*at - first), *ended, *failed)).collect();
    assert_eq!(told, [(TimeDelta::zero(), 2, 1), (minute, 0, 0), (minute * 2, 1, 0), (minute * 3, 0, 0)]);
    let lags: Vec<_> = minutes.iter().map(|minute| minute.lag.map(|lag| lag.num_seconds())).collect();
    assert_eq!(lags, [Some(0), None, Some(30), None]);
    assert_eq!(world.ended_minutes(first, 0).await.unwrap(), []);
}

pub(crate) async fn failures_come_newest_first_since_an_instant(world: World) {
    let long_ago = world.ended(task("old"), TaskStatus::Failed).await;
    world.advance_secs(60);
    let since = world.now();
    let mut failures = Vec::new();
    for name in ["a", "b"] {
        world.advance_secs(1);
        let running = world.running(task(name)).await;
        failures.push(world.settle_now(&running, failed(&format!("broke {name}"))).await);
        world.ended(task(name), TaskStatus::Completed).await;
    }
    let found = world.failures(since, 10).await.unwrap();
    let told: Vec<_> =
        found.iter().map(|failure| (failure.task_id, failure.topic.as_str(), failure.error.as_str())).collect();
    assert_eq!(told, [(failures[1].id, "b", "broke b"), (failures[0].id, "a", "broke a")]);
    assert_eq!((Some(found[0].at), found[0].schedule_id), (failures[1].completed_at, None));
    assert_eq!(world.failures(since, 1).await.unwrap().len(), 1);
    assert_eq!(world.failures(since - TimeDelta::minutes(2), 10).await.unwrap().last().unwrap().task_id, long_ago.id);
}

pub(crate) async fn what_fired_in_a_stretch_is_told_by_schedule(world: World) {
    let (busy, quiet, broken) =
        (world.every_minute("busy").await, world.every_minute("quiet").await, world.every_minute("broken").await);
    world.trigger(quiet.id).await.unwrap();
    world.ended(task("alone"), TaskStatus::Failed).await;
    world.advance_secs(1);
    let (from, mut triggered) = (world.now(), Vec::new());
    for id in [busy.id, busy.id, quiet.id, broken.id, busy.id, broken.id] {
        triggered.push(world.trigger(id).await.unwrap());
        world.advance_secs(1);
    }
    for claimed in world.claim_up_to(10, triggered[0].topic.as_str()).await {
        let end = if claimed.id == triggered[3].id { failed("no") } else { completed() };
        world.settle_now(&claimed, end).await;
    }
    world.delete_schedule(quiet.id).await.unwrap();
    world.ended(task("alone"), TaskStatus::Failed).await;
    let to = world.in_secs(1);
    let fired = world.fired(from, to, 100, 10).await.unwrap();
    let told = |fired: &Fired| {
        let one = |one: &FiredSchedule| (one.name.clone(), (one.at - from).num_seconds(), one.fires, one.failures);
        fired.schedules.iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!((fired.fires, fired.failures), (6, 1), "neither what fired before, nor what no schedule made");
    let expected = [(Some("broken".into()), 3, 2, 1), (None, 2, 1, 0), (Some("busy".into()), 0, 3, 0)];
    assert_eq!(told(&fired), expected, "what failed first, then what fired the least; one was deleted");
    let one = world.fired(from, to, 100, 1).await.unwrap();
    assert_eq!((one.fires, one.failures, told(&one)), (6, 1, expected[..1].to_vec()), "the others count all the same");
    assert_eq!(world.fired(from, to, 4, 10).await.unwrap().fires, 4, "no more are looked at than that");
    let until_the_fourth = world.fired(from, from + TimeDelta::seconds(3), 100, 10).await.unwrap();
    assert_eq!((until_the_fourth.fires, until_the_fourth.failures), (3, 0), "the end is left out");
    assert_eq!(world.fired(to, to, 100, 10).await.unwrap(), Fired::default());
}

pub(crate) async fn tasks_are_counted_up_to_a_bound(world: World) {
    world.ended(task("mail"), TaskStatus::Failed).await;
    for _ in 0..5 {
        world.add(task("mail")).await;
    }
    let all = TaskFilter { topic: Some(topic("mail")), ..TaskFilter::default() };
    for (filter, most, expected) in [
        (all.clone(), 10, 6),
        (all.clone(), 3, 3),
        (all.live_only().unwrap(), 10, 5),
        (all.failed_only().unwrap(), 10, 1),
        (TaskFilter { topic: Some(topic("none")), ..all.clone() }, 10, 0),
    ] {
        assert_eq!(world.count_tasks(&filter, most).await.unwrap(), expected, "{filter:?}");
    }
}

pub(crate) async fn it_is_known_whether_anything_happened(world: World) {
    let task = world.add(task("mail")).await.id;
    let written_at = world.now();
    assert!(!world.has_happened_since(written_at).await.unwrap(), "nothing has begun");
    world.advance_secs(1);
    let claimed = world.claim_one("mail").await;
    assert_eq!(claimed.id, task);
    assert!(world.has_happened_since(world.now()).await.unwrap(), "an attempt began");
    world.advance_secs(1);
    assert!(!world.has_happened_since(world.now()).await.unwrap(), "that was before");
    world.settle_now(&claimed, completed()).await;
    assert!(world.has_happened_since(world.now()).await.unwrap(), "a task ended");
    assert!(!world.has_happened_since(world.in_secs(1)).await.unwrap());
}
