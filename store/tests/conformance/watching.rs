//! Watching: fires that did not happen, and instants that made more than one task.

use std::time::Duration;

use chrono::TimeDelta;
use punctual_domain::event::MissedFire;
use punctual_domain::store::{FireAudit, MissedCursor};

use crate::support::*;

const THRESHOLD: Duration = Duration::from_secs(30);

pub(crate) async fn a_missed_instant_is_noted_once_whoever_sees_it(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(90);
    assert_eq!(world.note_missed(THRESHOLD, 10).await, Ok(vec![]));
    world.advance(TimeDelta::microseconds(1));
    let noted = side_by_side(world.eight_nodes().await, |node| async move { node.note_missed(THRESHOLD, 10).await });
    let noted: Vec<_> = noted.await.into_iter().flat_map(Result::unwrap).collect();
    let expected = MissedFire {
        schedule_id: schedule.id,
        name: "nightly".into(),
        topic: "report".into(),
        scheduled_at: schedule.next_fire_at.unwrap(),
        noted_at: world.now(),
    };
    assert_eq!(noted, [expected]);
    world.advance_secs(600);
    assert_eq!(world.note_missed(THRESHOLD, 10).await, Ok(vec![]));
}

pub(crate) async fn what_is_paused_caught_up_or_on_time_is_not_missed(world: World) {
    let mut paused = world.unwritten("paused");
    paused.enabled = false;
    world.create_schedule(&paused).await.unwrap();
    let mut caught_up = world.unwritten("caught up");
    caught_up.last_fired_at = Some(world.in_secs(590));
    world.create_schedule(&caught_up).await.unwrap();
    let mut ahead = world.unwritten("ahead");
    ahead.next_fire_at = Some(world.in_secs(575));
    world.create_schedule(&ahead).await.unwrap();
    world.advance_secs(600);
    assert_eq!(world.note_missed(THRESHOLD, 10).await, Ok(vec![]));
}

pub(crate) async fn missed_fires_are_read_back_in_the_order_they_were_noted(world: World) {
    let mut expected = Vec::new();
    let start = MissedCursor::since(world.now());
    for round in 0..3 {
        for i in 0..2 {
            let mut schedule = world.unwritten(&format!("{round} {i}"));
            schedule.next_fire_at = Some(world.now());
            world.create_schedule(&schedule).await.unwrap();
        }
        world.advance_secs(31);
        let mut noted = world.note_missed(THRESHOLD, 10).await.unwrap();
        noted.sort_by_key(|missed| missed.schedule_id);
        assert_eq!(noted.len(), 2);
        expected.extend(noted);
    }
    let mut read = Vec::new();
    let mut cursor = start;
    while let [next] = world.missed_fires(&cursor, 1).await.unwrap().as_slice() {
        cursor = MissedCursor::of(next);
        read.push(next.clone());
    }
    assert_eq!(read, expected);
    assert_eq!(world.missed_fires(&start, 100).await, Ok(expected));
    world.advance(TimeDelta::days(40));
    let pruned = world.prune(Duration::from_secs(86_400), 100).await.unwrap();
    assert_eq!((pruned.fires, world.missed_fires(&start, 100).await), (6, Ok(vec![])));
}

pub(crate) async fn an_instant_that_made_two_tasks_is_found_once(world: World) {
    let schedule = world.every_minute("nightly").await;
    // Looking begins with the first look.
    assert_eq!(world.audit_fires(10).await, Ok(FireAudit::default()));
    for _ in 0..3 {
        world.advance_secs(61);
        world.tick_by_the_rules().await;
        world.settle_now(&world.claim_one("report").await, failed("no")).await;
    }
    let at = |minute: i32| schedule.created_at + TimeDelta::minutes(1) * minute;
    // One made of the second instant that nobody accounts for; a retry of the first is no double.
    world.add(task("report").of_schedule(schedule.id, at(2))).await;
    world.settle_now(&world.claim_one("report").await, completed()).await;
    let first = world.list(Default::default()).await.pop().unwrap();
    world.retry(first.id).await.unwrap();
    world.settle_now(&world.claim_one("report").await, completed()).await;
    world.advance_secs(5);
    world.settle_now(&world.running(task("report").of_schedule(schedule.id, at(1))).await, completed()).await;
    // The last one ended too recently.
    world.advance_secs(9);
    let audits = side_by_side(world.eight_nodes().await, |node| async move { node.audit_fires(1).await.unwrap() });
    let mut audits = audits.await;
    loop {
        let audit = world.audit_fires(1).await.unwrap();
        if audit.tasks == 0 {
            break;
        }
        audits.push(audit);
    }
    assert_eq!(audits.iter().map(|audit| audit.tasks).sum::<u64>(), 5);
    let doubles: Vec<_> = audits.into_iter().flat_map(|audit| audit.doubles).collect();
    assert_eq!(doubles, [(schedule.id, at(2))]);
    world.advance_secs(1);
    assert_eq!(world.audit_fires(10).await, Ok(FireAudit { tasks: 1, doubles: vec![(schedule.id, at(1))] }));
}

pub(crate) async fn tasks_that_ended_together_are_audited_together(world: World) {
    world.audit_fires(10).await.unwrap();
    for i in 0..5 {
        world.every_minute(&format!("{i}")).await;
    }
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    for task in world.claim_up_to(9, "report").await {
        world.settle_now(&task, completed()).await;
    }
    world.advance_secs(60);
    assert_eq!(world.audit_fires(2).await, Ok(FireAudit { tasks: 5, doubles: vec![] }));
    assert_eq!(world.audit_fires(2).await, Ok(FireAudit::default()));
}
