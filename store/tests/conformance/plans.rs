//! Plans: when schedules are due, resume, or must be computed anew.

use chrono::TimeDelta;
use punctual_domain::fire::{DueSchedule, FireRules, Tick, decide};
use punctual_domain::schedule::{Schedule, ScheduleError};
use punctual_domain::store::{Lateness, NextTick, Replanned};

use crate::support::*;

const HALF_MINUTE: TimeDelta = TimeDelta::seconds(30);

pub(crate) async fn fresh_schedules_and_those_behind_are_ticked_apart(world: World) {
    for (name, seconds) in [("behind", 10), ("just behind", 69), ("just fresh", 70), ("fresh", 99), ("ahead", 101)] {
        let mut schedule = world.unwritten(name);
        schedule.next_fire_at = Some(world.in_secs(seconds));
        world.create_schedule(&schedule).await.unwrap();
    }
    world.advance_secs(100);
    for (lateness, expected) in [
        (Lateness::AtMost(HALF_MINUTE), ["just fresh", "fresh"].as_slice()),
        (Lateness::Over(HALF_MINUTE), &["behind", "just behind"]),
        (Lateness::Any, &["behind", "just behind", "just fresh", "fresh"]),
    ] {
        let seen = std::sync::Mutex::new(Vec::new());
        let look = |due: &DueSchedule, _| {
            seen.lock().unwrap().push(due.schedule.definition.name.clone());
            None
        };
        world.tick(lateness, 10, &look).await.unwrap();
        assert_eq!(seen.into_inner().unwrap(), expected, "{lateness:?}");
    }
}

pub(crate) async fn a_tick_tells_what_it_made_and_for_whom(world: World) {
    for (name, topic) in [("a", "mail"), ("b", "report"), ("c", "mail")] {
        let mut schedule = world.unwritten(name);
        schedule.definition.topic = topic.into();
        world.create_schedule(&schedule).await.unwrap();
    }
    world.advance_secs(65);
    let ticked = world.tick_by_the_rules().await;
    assert_eq!(ticked.lags, [TimeDelta::seconds(5); 3]);
    let due = world.now() - TimeDelta::seconds(5);
    assert_eq!(ticked.due.into_iter().collect::<Vec<_>>(), [(topic("mail"), due), (topic("report"), due)]);
}

pub(crate) async fn a_schedule_that_cannot_be_read_is_paused_and_holds_up_nobody(world: World) {
    let broken = world.every_minute("broken").await;
    world.every_minute("sound").await;
    world.database.execute("UPDATE punctual_schedules SET definition = '{' WHERE name = 'broken'").await;
    world.advance_secs(61);
    let ticked = world.tick_by_the_rules().await;
    assert_eq!((ticked.fired, ticked.paused.len(), ticked.paused[0].0), (1, 1, broken.id));
    let history = world.schedule_history(broken.id).await.unwrap();
    let [(changed_at, Some(paused)), (_, Some(written))] = history.as_slice() else { panic!("{history:?}") };
    assert_eq!((*changed_at, written), (world.now(), &broken));
    let note = paused.pause_note.clone();
    assert!(note.as_ref().is_some_and(|note| note.starts_with("paused because ")), "{note:?}");
    let paused_then = broken.clone().paused(note, None);
    assert_eq!(*paused, Schedule { version: 2, updated_at: world.now(), ..paused_then });
    world.advance_secs(60);
    assert_eq!(world.tick_by_the_rules().await.paused, []);

    // Where nothing can be told of what it was, it is paused all the same.
    let lost = world.every_minute("lost").await;
    world.database.execute("UPDATE punctual_schedules SET definition = '{' WHERE name = 'lost'").await;
    world.database.execute("UPDATE punctual_schedule_history SET schedule = '{' WHERE version = 1").await;
    world.advance_secs(61);
    assert_eq!(world.tick_by_the_rules().await.paused[0].0, lost.id);
    world.advance_secs(60);
    assert_eq!(world.tick_by_the_rules().await.paused, []);
}

pub(crate) async fn a_schedule_that_cannot_be_understood_is_paused_with_a_note(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    let stop = |due: &DueSchedule, _| {
        let rules = FireRules { zones: ZONES.clone(), misfire_threshold: HALF_MINUTE };
        Some(Tick::stop(&due.schedule, &ScheduleError::OnlyInGaps, &rules))
    };
    let ticked = world.tick(Lateness::Any, 10, &stop).await.unwrap();
    assert_eq!((ticked.fired, ticked.paused.len(), ticked.paused[0].0), (0, 1, schedule.id));
    let paused = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!((paused.enabled, paused.next_fire_at, paused.version), (false, None, 2));
    assert_eq!(paused.pause_note.as_deref(), Some(ticked.paused[0].1.as_str()));
    assert_eq!(world.schedule_history(schedule.id).await.unwrap()[0], (world.now(), Some(paused)));
}

pub(crate) async fn only_fresh_ticks_end_pauses(world: World) {
    let schedule = world.every_minute("nightly").await;
    let until = world.in_secs(30);
    world.update_schedule(&schedule.paused(None, Some(until))).await.unwrap();
    assert_eq!(world.next_tick_at().await, Ok(NextTick { fire_at: None, resume_at: Some(until) }));
    world.advance_secs(3600);
    let by_the_rules = |due: &DueSchedule, now| {
        let rules = FireRules { zones: ZONES.clone(), misfire_threshold: HALF_MINUTE };
        Some(decide(due, now, &rules).unwrap())
    };
    assert_eq!(counts(&world.tick(Lateness::Over(HALF_MINUTE), 10, &by_the_rules).await.unwrap()), [0; 4]);
    assert_eq!(world.tick(Lateness::AtMost(HALF_MINUTE), 10, &by_the_rules).await.unwrap().schedules, 1);
}

pub(crate) async fn plans_made_with_other_zone_data_are_made_anew_once(world: World) {
    let mut schedules = Vec::new();
    for (name, tz_version, ahead) in
        [("old", "2024a", 60), ("due", "2024a", 5), ("new", "2026e", 60), ("b", "2024a", 9)]
    {
        let mut schedule = world.unwritten(name);
        schedule.tz_version = tz_version.into();
        schedule.next_fire_at = Some(world.in_secs(ahead));
        world.create_schedule(&schedule).await.unwrap();
        schedules.push(schedule);
    }
    world.advance_secs(6);
    // What is due already is decided as it was planned.
    let stale = world.stale_plans("2026e", None, 10).await.unwrap();
    assert_eq!(stale, [schedules[0].clone(), schedules[3].clone()]);
    assert_eq!(world.stale_plans("2026e", Some(stale[0].id), 10).await, Ok(vec![stale[1].clone()]));
    assert_eq!(world.stale_plans("2026e", None, 1).await, Ok(vec![stale[0].clone()]));

    let moved =
        Replanned { id: stale[0].id, version: 1, was: stale[0].next_fire_at, next_fire_at: Some(world.in_secs(500)) };
    let edited = Replanned { id: stale[1].id, version: 2, was: stale[1].next_fire_at, ..moved };
    let fired = Replanned { id: stale[1].id, was: Some(world.in_secs(1)), ..moved };
    assert_eq!(world.replan(&[moved, edited, fired], "2026e").await, Ok(1));
    let replanned = world.schedule(stale[0].id).await.unwrap().unwrap();
    assert_eq!((replanned.next_fire_at, replanned.version), (moved.next_fire_at, 1));
    assert_eq!(replanned.tz_version, "2026e");
    assert_eq!(world.stale_plans("2026e", None, 10).await, Ok(vec![stale[1].clone()]));
}

pub(crate) async fn due_tasks_are_counted_up_to_a_bound(world: World) {
    world.add_all((0..5).map(|_| task("mail"))).await;
    world.add(task("mail").in_secs(60)).await;
    world.running(task("other")).await;
    for (most, expected) in [(3, 3), (5, 5), (100, 5)] {
        assert_eq!(world.due_tasks(most).await, Ok(expected));
    }
}
