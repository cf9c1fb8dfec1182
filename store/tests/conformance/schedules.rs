//! Schedules: written, read, edited by version, deleted; and what they were.

use chrono::TimeDelta;
use punctual_domain::calendar::Calendar;
use punctual_domain::fire::SkipReason;
use punctual_domain::id::ScheduleId;
use punctual_domain::json::Json;
use punctual_domain::retry::{Backoff, Growth};
use punctual_domain::schedule::{Definition, MisfirePolicy, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::store::{Depth, FireFilter, Page, ScheduleFilter, StoreError};
use punctual_domain::task::TaskStatus;
use punctual_domain::time::{DstFold, DstGap};

use crate::support::*;

async fn names(node: &NodeStore, filter: ScheduleFilter) -> Vec<String> {
    let found = node.schedules(&filter, Page::first(100)).await.unwrap();
    found.into_iter().map(|schedule| schedule.definition.name).collect()
}

pub(crate) async fn a_schedule_can_be_read_back(world: World) {
    let schedule = world.every_minute("nightly").await;
    assert_eq!(world.schedule(schedule.id).await, Ok(Some(schedule.clone())));
    assert_eq!(world.schedule_by_name("nightly").await, Ok(Some(schedule.clone())));
    assert_eq!(world.schedules(&ScheduleFilter::default(), Page::first(10)).await, Ok(vec![schedule]));
}

pub(crate) async fn every_field_of_a_schedule_comes_back(world: World) {
    let schedule = Schedule {
        id: ScheduleId::generate(),
        definition: Definition {
            name: "täglich 🎉 'quoted'".into(),
            description: Some("zeile\nzwei".into()),
            rhythm: Rhythm::Cron("0 30 8 * * MON-FRI".into()),
            timezone: "America/Edmonton".into(),
            topic: "report.daily".into(),
            payload: Json::parse(r#"{ "b" : 1.50, "a": 12345678901234567890123 }"#).unwrap(),
            max_retries: Some(7),
            backoff: Some(Backoff { growth: Growth::Fixed, delay: 1, max_delay: 2, jitter: 0.25 }),
            timeout_seconds: Some(17),
            priority: -3,
            overlap_policy: OverlapPolicy::CancelPrevious,
            misfire_policy: MisfirePolicy::FireAll,
            misfire_window_seconds: 99,
            jitter_seconds: 5,
            start_at: Some(world.in_secs(1)),
            end_at: Some(world.in_secs(1_000_000)),
            max_fires: Some(1 << 40),
            dst_gap: Some(DstGap::Skip),
            dst_fold: Some(DstFold::Both),
            exclude_calendars: vec!["holidays".into(), "ferien".into()],
            metadata: map([("ownerId", "søren"), ("tenantId", "租户")]),
            created_by: Some("somebody".into()),
        },
        client_request_id: Some("c".into()),
        enabled: false,
        pause_note: Some("for now ✋".into()),
        paused_until: Some(world.in_secs(50)),
        last_fired_at: Some(world.in_secs(-5)),
        next_fire_at: Some(world.now() + TimeDelta::microseconds(1)),
        fired_through: Some(world.in_secs(-6)),
        tz_version: "2026a".into(),
        fires_made: 12,
        created_at: world.in_secs(-100),
        updated_at: world.in_secs(-50),
        version: 1,
    };
    for name in ["holidays", "ferien"] {
        let calendar = Calendar { name: name.into(), dates: Default::default(), weekdays: vec![] };
        world.put_calendar(&calendar).await.unwrap();
    }
    assert_eq!(world.create_schedule(&schedule).await, Ok(schedule.clone()));
    assert_eq!(world.schedule(schedule.id).await, Ok(Some(schedule.clone())));
    assert_eq!(world.schedule_by_name(&schedule.definition.name).await, Ok(Some(schedule)));
}

pub(crate) async fn unknown_schedules_are_none(world: World) {
    assert_eq!(world.schedule(ScheduleId::generate()).await, Ok(None));
    assert_eq!(world.schedule_by_name("nobody").await, Ok(None));
    assert_eq!(world.schedule_history(ScheduleId::generate()).await, Ok(vec![]));
    assert_eq!(world.delete_schedule(ScheduleId::generate()).await, Ok(false));
}

pub(crate) async fn a_name_belongs_to_one_schedule(world: World) {
    world.every_minute("nightly").await;
    let second = world.unwritten("nightly");
    assert_eq!(world.create_schedule(&second).await, Err(StoreError::NameTaken("nightly".into())));
    assert_eq!(world.schedule(second.id).await, Ok(None));
    assert_eq!(world.schedule_history(second.id).await, Ok(vec![]));
    world.every_minute("Nightly").await;
}

pub(crate) async fn eight_writers_of_one_name_make_one_schedule(world: World) {
    let schedules: Vec<_> = (0..8).map(|_| world.unwritten("nightly")).collect();
    let nodes = world.eight_nodes().await;
    let racing = nodes.iter().zip(&schedules).map(|(node, schedule)| node.create_schedule(schedule));
    let answers = futures::future::join_all(racing).await;
    assert_eq!(answers.iter().filter(|answer| answer.is_ok()).count(), 1);
    let taken = StoreError::NameTaken("nightly".into());
    assert!(answers.iter().flat_map(|answer| answer.as_ref().err()).all(|error| *error == taken), "{answers:?}");
}

pub(crate) async fn schedules_are_filtered_and_newest_first(world: World) {
    for (name, topic, owner, enabled) in [
        ("one", "mail", "me", true),
        ("two", "mail", "you", true),
        ("three", "print", "me", true),
        ("four", "mail", "me", false),
    ] {
        let mut schedule = world.unwritten(name);
        schedule.definition.topic = topic.into();
        schedule.definition.metadata = map([("ownerId", owner)]);
        schedule.enabled = enabled;
        world.create_schedule(&schedule).await.unwrap();
    }
    let all = ScheduleFilter::default();
    assert_eq!(names(&world, all.clone()).await, ["four", "three", "two", "one"]);
    let enabled = ScheduleFilter { enabled: Some(true), ..all.clone() };
    assert_eq!(names(&world, enabled.clone()).await, ["three", "two", "one"]);
    assert_eq!(names(&world, ScheduleFilter { enabled: Some(false), ..all.clone() }).await, ["four"]);
    let mail = ScheduleFilter { topic: Some("mail".into()), ..all.clone() };
    assert_eq!(names(&world, mail.clone()).await, ["four", "two", "one"]);
    assert_eq!(names(&world, ScheduleFilter { name: Some("two".into()), ..all.clone() }).await, ["two"]);
    let mine = ScheduleFilter { owner_id: Some("me".into()), ..all.clone() };
    assert_eq!(names(&world, mine.clone()).await, ["four", "three", "one"]);
    let mine = ScheduleFilter { enabled: Some(true), topic: Some("mail".into()), ..mine };
    assert_eq!(names(&world, mine.clone()).await, ["one"]);
    assert_eq!(names(&world, ScheduleFilter { name: Some("two".into()), ..mine }).await, [""; 0]);
}

pub(crate) async fn pages_of_schedules_miss_and_repeat_none(world: World) {
    let mut expected = Vec::new();
    for i in 0..25 {
        expected.push(world.every_minute(&format!("schedule {i}")).await.id);
    }
    expected.reverse();
    let mut page = Page::first(10);
    let mut found = Vec::new();
    for length in [10, 10, 5] {
        let schedules = world.schedules(&ScheduleFilter::default(), page).await.unwrap();
        assert_eq!(schedules.len(), length);
        found.extend(schedules.iter().map(|schedule| schedule.id));
        page.after = found.last().copied();
    }
    assert_eq!(found, expected);
    assert_eq!(world.schedules(&ScheduleFilter::default(), page).await, Ok(vec![]));
}

pub(crate) async fn an_edit_is_written_and_grows_the_version(world: World) {
    let mut edited = world.every_minute("nightly").await;
    world.advance_secs(5);
    edited.definition.name = "daily".into();
    edited.definition.topic = "print".into();
    edited.definition.payload = Json::parse("[1.0]").unwrap();
    edited.definition.metadata = map([("ownerId", "me")]);
    edited.enabled = false;
    edited.pause_note = Some("for now".into());
    edited.paused_until = Some(world.in_secs(60));
    edited.next_fire_at = None;
    edited.updated_at = world.now();
    let expected = Schedule { version: 2, ..edited.clone() };
    assert_eq!(world.update_schedule(&edited).await, Ok(expected.clone()));
    assert_eq!(world.schedule(edited.id).await, Ok(Some(expected.clone())));
    assert_eq!(world.schedule_by_name("nightly").await, Ok(None));
    assert_eq!(world.schedule_by_name("daily").await, Ok(Some(expected)));
    for filter in [
        ScheduleFilter { owner_id: Some("me".into()), ..Default::default() },
        ScheduleFilter { topic: Some("print".into()), ..Default::default() },
        ScheduleFilter { enabled: Some(false), ..Default::default() },
    ] {
        assert_eq!(names(&world, filter).await, ["daily"]);
    }
    // The old name is free.
    world.every_minute("nightly").await;
}

pub(crate) async fn the_stores_clock_says_when_a_schedule_was_edited(world: World) {
    let mut edited = world.every_minute("nightly").await;
    world.advance_secs(5);
    edited.updated_at = world.in_secs(-500);
    let stored = world.update_schedule(&edited).await.unwrap();
    assert_eq!(stored.updated_at, world.now());
    assert_eq!(world.schedule(edited.id).await, Ok(Some(stored)));
}

pub(crate) async fn a_stale_edit_is_refused_with_the_present_version(world: World) {
    let first = world.every_minute("nightly").await;
    let mut second = first.clone();
    for description in ["one", "two"] {
        second.definition.description = Some(description.into());
        second = world.update_schedule(&second).await.unwrap();
    }
    assert_eq!(world.update_schedule(&first).await, Err(StoreError::VersionMismatch(3)));
    let future = Schedule { version: 4, ..first };
    assert_eq!(world.update_schedule(&future).await, Err(StoreError::VersionMismatch(3)));
    assert_eq!(world.schedule(second.id).await, Ok(Some(second)));
}

pub(crate) async fn an_edit_cannot_take_the_name_of_another(world: World) {
    world.every_minute("one").await;
    let two = world.every_minute("two").await;
    let mut edited = two.clone();
    edited.definition.name = "one".into();
    assert_eq!(world.update_schedule(&edited).await, Err(StoreError::NameTaken("one".into())));
    assert_eq!(world.schedule(two.id).await, Ok(Some(two.clone())));
    assert_eq!(world.schedule_history(two.id).await.unwrap().len(), 1);
}

pub(crate) async fn an_unknown_schedule_is_not_edited(world: World) {
    let schedule = world.unwritten("nightly");
    assert_eq!(world.update_schedule(&schedule).await, Err(StoreError::NotFound));
    let deleted = world.every_minute("nightly").await;
    world.delete_schedule(deleted.id).await.unwrap();
    assert_eq!(world.update_schedule(&deleted).await, Err(StoreError::NotFound));
}

pub(crate) async fn an_edit_leaves_what_fires_wrote(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    let fired = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!((fired.version, fired.fires_made), (1, 1));

    let mut edited = fired.clone();
    edited.definition.description = Some("edited".into());
    edited.next_fire_at = Some(world.in_secs(500));
    edited.last_fired_at = None;
    edited.fires_made = 7;
    let updated = world.update_schedule(&edited).await.unwrap();
    assert_eq!((updated.last_fired_at, updated.fires_made), (fired.last_fired_at, 1));
    assert_eq!(updated.fired_through, fired.fired_through);
    assert_eq!((updated.next_fire_at, updated.version), (edited.next_fire_at, 2));
    assert_eq!(world.schedule(updated.id).await, Ok(Some(updated)));
}

pub(crate) async fn what_was_due_before_an_edit_is_decided_as_it_was(world: World) {
    let read_before_the_fire = world.every_minute("nightly").await;
    let mut edited = read_before_the_fire.clone();
    edited.definition.payload = Json::parse("\"new\"").unwrap();
    edited.next_fire_at = Some(world.in_secs(500));
    world.advance_secs(61);
    assert_eq!(world.update_schedule(&edited).await, Err(StoreError::Moved), "it is due");
    assert_eq!(world.tick_one_by_the_rules(edited.id).await.fired, 1);
    assert_eq!(world.tick_one_by_the_rules(edited.id).await, Default::default());
    assert_eq!(world.update_schedule(&edited).await, Err(StoreError::Moved), "it has fired");
    assert_eq!(world.schedule_history(edited.id).await.unwrap().len(), 1);

    let fired = world.schedule(edited.id).await.unwrap().unwrap();
    edited.fired_through = fired.fired_through;
    let updated = world.update_schedule(&edited).await.unwrap();
    assert_eq!((updated.definition.payload.as_str(), updated.fires_made), ("\"new\"", 1));
    assert_eq!(world.claim_one("report").await.payload, read_before_the_fire.definition.payload);
}

pub(crate) async fn a_paused_schedule_is_edited_however_late_its_instants_are(world: World) {
    let paused = world.every_minute("nightly").await.paused(Some("for now".into()), None);
    let mut paused = world.update_schedule(&paused).await.unwrap();
    world.advance_secs(3600);
    paused.definition.description = Some("edited".into());
    assert_eq!(world.update_schedule(&paused).await.unwrap().version, 3);
    assert_eq!(world.tick_one_by_the_rules(paused.id).await, Default::default());
    assert_eq!(world.tick_one_by_the_rules(ScheduleId::generate()).await, Default::default());
}

pub(crate) async fn a_pause_ends_by_itself(world: World) {
    let schedule = world.every_minute("nightly").await;
    let until = schedule.created_at + TimeDelta::minutes(10);
    let paused = world.update_schedule(&schedule.paused(Some("for now".into()), Some(until))).await.unwrap();
    assert_eq!((paused.enabled, paused.next_fire_at, paused.paused_until), (false, None, Some(until)));
    assert_eq!(world.next_tick_at().await.unwrap().resume_at, Some(until), "somebody has to look then");
    world.clock.advance_to(until - TimeDelta::microseconds(1));
    assert_eq!(world.tick_by_the_rules().await, Default::default());

    world.clock.advance_to(until + TimeDelta::seconds(5));
    assert_eq!(world.update_schedule(&paused).await, Err(StoreError::Moved), "it is about to resume");
    let ticked = world.tick_by_the_rules().await;
    assert_eq!((ticked.schedules, ticked.fired, ticked.skipped), (1, 1, 0), "the instant at its end fires");
    let resumed = world.schedule(paused.id).await.unwrap().unwrap();
    assert!(resumed.enabled && resumed.pause_note.is_none() && resumed.paused_until.is_none());
    assert_eq!((resumed.next_fire_at, resumed.fired_through), (Some(until + TimeDelta::minutes(1)), Some(until)));
    assert_eq!((resumed.version, resumed.updated_at), (3, world.now()));
    let history = world.schedule_history(paused.id).await.unwrap();
    assert_eq!(history[0].1.as_ref(), Some(&resumed));
    assert_eq!(history.len(), 3);
    assert_eq!(world.next_tick_at().await.unwrap().fire_at, resumed.next_fire_at);
}

pub(crate) async fn a_deletion_may_ask_for_a_version(world: World) {
    let schedule = world.every_minute("nightly").await;
    let waiting = world.add(task("report").of_schedule(schedule.id, world.now())).await;
    assert_eq!(world.store.delete_schedule(schedule.id, Some(2)).await, Err(StoreError::VersionMismatch(1)));
    assert_eq!(world.schedule(schedule.id).await, Ok(Some(schedule.clone())));
    assert_eq!(world.read(waiting.id).await, waiting);
    assert_eq!(world.schedule_history(schedule.id).await.unwrap().len(), 1);
    let cancelled = vec![Depth { topic: "report".into(), of_schedules: true, tasks: 1 }];
    assert_eq!(world.store.delete_schedule(schedule.id, Some(1)).await, Ok(Some(cancelled)));
    assert_eq!(world.store.delete_schedule(schedule.id, Some(1)).await, Ok(None));
}

pub(crate) async fn what_is_due_is_decided_before_a_deletion(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.misfire_policy = MisfirePolicy::FireAll;
    schedule.definition.overlap_policy = OverlapPolicy::CancelPrevious;
    world.create_schedule(&schedule).await.unwrap();
    let at = |minute: i32| schedule.created_at + TimeDelta::minutes(1) * minute;
    world.clock.advance_to(at(1_440) + TimeDelta::seconds(10));
    assert_eq!(world.store.delete_schedule(schedule.id, Some(2)).await, Err(StoreError::VersionMismatch(1)));
    assert_eq!(world.delete_schedule(schedule.id).await, Err(StoreError::Moved), "it is due");
    assert_eq!(world.schedule(schedule.id).await, Ok(Some(schedule.clone())));
    assert_eq!(world.schedule_history(schedule.id).await.unwrap().len(), 1);

    assert_eq!(world.delete_schedule_in_order(schedule.id).await, Ok(true));
    let fires = world.fires(schedule.id, &FireFilter::default(), Page::first(10)).await.unwrap();
    let told: Vec<_> = fires.iter().map(|fire| (fire.scheduled_at, fire.reason, fire.until, fire.count)).collect();
    let missed = (at(1), Some(SkipReason::Misfire), Some(at(1_439)), 1_439);
    assert_eq!(told, [(at(1_440), None, None, 1), missed], "a day is two rows");
    assert_eq!(fires[0].task.as_ref().unwrap().status, Some(TaskStatus::Cancelled));
    assert_eq!(world.schedule_history(schedule.id).await.unwrap()[0], (world.now(), None));
}

pub(crate) async fn a_paused_schedule_is_deleted_however_late_its_instants_are(world: World) {
    let paused = world.every_minute("nightly").await.paused(None, None);
    world.update_schedule(&paused).await.unwrap();
    let soon = world.every_minute("soon").await.paused(None, Some(world.in_secs(600)));
    world.update_schedule(&soon).await.unwrap();
    world.advance_secs(599);
    assert_eq!(world.delete_schedule(paused.id).await, Ok(true));
    world.advance_secs(1);
    assert_eq!(world.delete_schedule(soon.id).await, Err(StoreError::Moved), "its pause has ended");
    assert_eq!(world.delete_schedule_in_order(soon.id).await, Ok(true));
    assert_eq!(world.database.count("punctual_fires").await, 1);
}

pub(crate) async fn a_deletion_and_a_tick_in_the_same_moment_lose_no_instant(world: World) {
    let other = world.another_node().await;
    for round in 1..=20 {
        let mut schedule = world.unwritten(&format!("schedule {round}"));
        schedule.definition.misfire_policy = MisfirePolicy::FireAll;
        world.create_schedule(&schedule).await.unwrap();
        world.advance_secs(61);
        let (deleted, _) = tokio::join!(world.delete_schedule_in_order(schedule.id), other.tick_by_the_rules());
        assert_eq!(deleted, Ok(true));
        assert_eq!(world.database.count("punctual_fires").await, round);
    }
}

pub(crate) async fn a_schedule_names_only_calendars_that_are_there(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.exclude_calendars = vec!["holidays".into()];
    let unknown = Err(StoreError::UnknownCalendar("holidays".into()));
    assert_eq!(world.create_schedule(&schedule).await, unknown);
    assert_eq!(world.schedule(schedule.id).await, Ok(None));
    let written = world.every_minute("nightly").await;
    let edited = Schedule { definition: schedule.definition, ..written.clone() };
    assert_eq!(world.update_schedule(&edited).await, unknown);
    assert_eq!(world.schedule(written.id).await, Ok(Some(written)));
}

pub(crate) async fn of_eight_racing_edits_one_is_written(world: World) {
    let schedule = world.every_minute("nightly").await;
    let answers = side_by_side(world.eight_nodes().await, |node| {
        let mut edited = schedule.clone();
        async move {
            edited.definition.description = Some(node.id.to_string());
            node.update_schedule(&edited).await
        }
    })
    .await;
    let written: Vec<_> = answers.iter().flatten().collect();
    assert_eq!(written.len(), 1);
    assert_eq!(answers.iter().filter(|answer| **answer == Err(StoreError::VersionMismatch(2))).count(), 7);
    assert_eq!(world.schedule(schedule.id).await.unwrap().as_ref(), Some(written[0]));
}

pub(crate) async fn history_tells_what_a_schedule_was_and_from_when_on(world: World) {
    let first = world.every_minute("nightly").await;
    let made_at = world.now();
    world.advance_secs(10);
    let mut edited = first.clone();
    edited.definition.payload = Json::parse("[1.50]").unwrap();
    edited.updated_at = world.now();
    let second = world.update_schedule(&edited).await.unwrap();
    let edited_at = world.now();
    world.advance_secs(10);
    world.delete_schedule(first.id).await.unwrap();
    let expected = vec![(world.now(), None), (edited_at, Some(second)), (made_at, Some(first.clone()))];
    assert_eq!(world.schedule_history(first.id).await, Ok(expected));
}

pub(crate) async fn a_schedule_that_was_deleted_was_there_once(world: World) {
    let (kept, deleted) = (world.every_minute("kept").await, world.every_minute("deleted").await);
    world.delete_schedule(deleted.id).await.unwrap();
    for (id, was_ever) in [(kept.id, true), (deleted.id, true), (ScheduleId::generate(), false)] {
        assert_eq!(world.schedule_was_ever(id).await, Ok(was_ever));
    }
    let refused = world.unwritten("kept");
    world.create_schedule(&refused).await.unwrap_err();
    assert_eq!(world.schedule_was_ever(refused.id).await, Ok(false));
}

pub(crate) async fn fires_write_no_history(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    assert_eq!(world.schedule_history(schedule.id).await.unwrap().len(), 1);
}

pub(crate) async fn deleting_a_schedule_cancels_what_waits_and_lets_the_rest_finish(world: World) {
    let schedule = world.every_minute("nightly").await;
    let other = world.running(task("report")).await;
    let other = world.settle_now(&other, retried(9999)).await;
    world.advance_secs(61);
    world.tick_by_the_rules().await;
    let running = world.claim_one("report").await;
    let waiting = world.add(task("report").of_schedule(schedule.id, world.now())).await;

    assert_eq!(world.delete_schedule(schedule.id).await, Ok(true));
    assert_eq!(world.schedule(schedule.id).await, Ok(None));
    assert_eq!(world.read(waiting.id).await, waiting.cancel(world.now()).unwrap());
    assert_eq!(world.read(running.id).await, running);
    assert_eq!(world.read(other.id).await, other);
    world.settle_now(&running, completed()).await;

    let fires = world.fires(schedule.id, &FireFilter::default(), Page::first(10)).await.unwrap();
    assert_eq!(fires.len(), 1);
    assert_eq!(fires[0].task.as_ref().unwrap().status, Some(TaskStatus::Completed));
    assert_eq!(world.delete_schedule(schedule.id).await, Ok(false));
}

pub(crate) async fn a_deleted_schedule_is_never_due_and_its_name_is_free(world: World) {
    let schedule = world.every_minute("nightly").await;
    world.delete_schedule(schedule.id).await.unwrap();
    world.advance_secs(3600);
    assert_eq!(world.tick_by_the_rules().await, Default::default());
    assert_eq!(world.next_tick_at().await.unwrap().fire_at, None);
    assert_eq!(names(&world, ScheduleFilter::default()).await, [""; 0]);
    world.every_minute("nightly").await;
}

pub(crate) async fn the_next_fire_is_that_of_the_earliest_schedule(world: World) {
    assert_eq!(world.next_tick_at().await.unwrap().fire_at, None);
    let mut done = world.unwritten("done");
    done.next_fire_at = None;
    world.create_schedule(&done).await.unwrap();
    assert_eq!(world.next_tick_at().await.unwrap().fire_at, None);
    let first = world.every_minute("first").await;
    world.advance_secs(10);
    world.every_minute("second").await;
    assert_eq!(world.next_tick_at().await.unwrap().fire_at, first.next_fire_at);
    // One that has passed is told until somebody acts on it.
    world.advance_secs(500);
    assert_eq!(world.next_tick_at().await.unwrap().fire_at, first.next_fire_at);
}

pub(crate) async fn an_edit_and_a_tick_in_the_same_moment_lose_neither(world: World) {
    let mut schedule = world.unwritten("nightly");
    schedule.definition.overlap_policy = OverlapPolicy::Allow;
    world.create_schedule(&schedule).await.unwrap();
    let other = world.another_node().await;
    for round in 0..20 {
        world.advance_secs(60);
        let edit = async {
            loop {
                let mut edited = world.schedule(schedule.id).await.unwrap().unwrap();
                edited.definition.description = Some(round.to_string());
                match world.update_schedule(&edited).await {
                    Err(StoreError::Moved) => drop(world.tick_one_by_the_rules(schedule.id).await),
                    updated => return updated.unwrap().version,
                }
            }
        };
        let (version, _) = tokio::join!(edit, other.tick_by_the_rules());
        assert_eq!(version, round + 2, "round {round}");
    }
    let after = world.schedule(schedule.id).await.unwrap().unwrap();
    assert_eq!((after.fires_made, after.version), (20, 21));
    assert_eq!(after.definition.description.as_deref(), Some("19"));
    assert_eq!(world.database.count("punctual_fires").await, 20);
}

pub(crate) async fn a_schedule_deleted_during_a_tick_leaves_no_task_waiting(world: World) {
    let other = world.another_node().await;
    for round in 0..20 {
        let schedule = world.every_minute(&format!("schedule {round}")).await;
        world.advance_secs(61);
        let (deleted, _) = tokio::join!(world.delete_schedule_in_order(schedule.id), other.tick_by_the_rules());
        assert_eq!(deleted, Ok(true));
        let left = world.list(punctual_domain::store::TaskFilter {
            schedule_id: Some(schedule.id),
            status: vec![TaskStatus::Pending],
            ..Default::default()
        });
        assert_eq!(left.await, [], "round {round}");
    }
}
