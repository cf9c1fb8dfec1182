//! Recurring work.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use punctual::{
    Attempt, Error, NewSchedule, Outcome, OverlapPolicy, Page, Punctual, Rhythm, ScheduleFilter, ScheduleId,
    TaskFilter, TaskStatus,
};
use punctual_domain::clock::FakeClock;

use crate::on_each_database;
use crate::support::Database;

on_each_database!(
    a_schedule_is_kept_with_its_first_instant,
    a_schedule_fires_in_the_process_that_made_it,
    a_bad_schedule_is_refused_and_makes_nothing,
    what_is_due_is_decided_before_a_schedule_is_deleted
);

async fn a_schedule_is_kept_with_its_first_instant(database: Database) {
    let punctual = Punctual::builder().database(&database.url).connect().await.unwrap();
    let new = NewSchedule::new("heartbeat", "ai.agent-heartbeat")
        .every(Duration::from_secs(60), "America/Mexico_City")
        .payload(serde_json::json!({"agentId": "xyz"}))
        .attempts(5)
        .overlap(OverlapPolicy::Queue)
        .metadata("ownerId", "o")
        .client_request_id("c");
    let schedule = punctual.schedule_repeat(new.clone()).await.unwrap();
    assert_eq!(schedule.definition.rhythm, Rhythm::Every(60_000));
    assert_eq!((schedule.definition.max_retries, schedule.definition.overlap_policy), (Some(5), OverlapPolicy::Queue));
    assert_eq!(schedule.next_fire_at, Some(schedule.created_at + Duration::from_secs(60)));
    assert_eq!(punctual.schedule(schedule.id).await.unwrap().unwrap().definition, schedule.definition);

    let weekdays = NewSchedule::new("weekdays", "report").cron("0 9 * * 1-5", "America/Mexico_City");
    let weekdays = punctual.schedule_repeat(weekdays).await.unwrap();
    let filter = ScheduleFilter { owner_id: Some("o".into()), ..ScheduleFilter::default() };
    let ids = |schedules: Vec<punctual::Schedule>| schedules.into_iter().map(|one| one.id).collect::<Vec<_>>();
    assert_eq!(ids(punctual.schedules(&filter, Page::first(9)).await.unwrap()), [schedule.id]);
    let all = punctual.schedules(&ScheduleFilter::default(), Page::first(9)).await.unwrap();
    assert_eq!(ids(all), [weekdays.id, schedule.id]);

    let taken = NewSchedule::new("weekdays", "report").cron("@daily", "UTC");
    assert_eq!(punctual.schedule_repeat(taken).await, Err(Error::NameTaken("weekdays".into())));
    let used = NewSchedule::new("other", "report").cron("@daily", "UTC").client_request_id("c");
    assert_eq!(punctual.schedule_repeat(used).await, Err(Error::ClientRequestIdInUse("c".into())));
    punctual.delete_schedule(weekdays.id).await.unwrap();
    assert_eq!(punctual.delete_schedule(weekdays.id).await, Err(Error::NotFound));
    assert_eq!(punctual.schedule(weekdays.id).await, Ok(None));
    punctual.stop().await.unwrap();
}

async fn a_schedule_fires_in_the_process_that_made_it(database: Database) {
    let (told, mut heard) = tokio::sync::mpsc::unbounded_channel();
    let punctual = Punctual::builder()
        .database(&database.url)
        .handler("beat", move |attempt: Attempt| {
            let told = told.clone();
            async move {
                let _ = told.send((attempt.schedule_id, attempt.scheduled_at));
                Outcome::completed()
            }
        })
        .start()
        .await
        .unwrap();
    let every_second = NewSchedule::new("heartbeat", "beat").every(Duration::from_secs(1), "UTC");
    let schedule = punctual.schedule_repeat(every_second).await.unwrap();
    for beat in 1..=2 {
        let at = schedule.created_at + Duration::from_secs(beat);
        assert_eq!(heard.recv().await, Some((Some(schedule.id.0), Some(at))));
    }
    punctual.stop().await.unwrap();
}

async fn what_is_due_is_decided_before_a_schedule_is_deleted(database: Database) {
    let clock = FakeClock::at_text("2040-01-02T12:00:00Z");
    let open = || Punctual::builder().database(&database.url).clock(Arc::new(clock.clone()));
    let punctual = open().connect().await.unwrap();
    let every_minute = NewSchedule::new("heartbeat", "beat").every(Duration::from_secs(60), "UTC");
    let schedule = punctual.schedule_repeat(every_minute.clone()).await.unwrap();
    clock.advance(TimeDelta::hours(1));
    punctual.delete_schedule(schedule.id).await.unwrap();
    assert_eq!(database.number("SELECT CAST(sum(count) AS bigint) FROM punctual_fires").await, 60);
    let filter = TaskFilter { schedule_id: Some(schedule.id), ..TaskFilter::default() };
    let tasks = punctual.list(&filter, Page::first(9)).await.unwrap();
    assert_eq!(tasks.iter().map(|task| task.status).collect::<Vec<_>>(), [TaskStatus::Cancelled]);
    punctual.stop().await.unwrap();
}

async fn a_bad_schedule_is_refused_and_makes_nothing(database: Database) {
    let punctual = Punctual::builder().database(&database.url).connect().await.unwrap();
    let bad = NewSchedule::new("a", "t").cron("61 * * * *", "UTC").priority(101);
    let Err(Error::Invalid(invalid)) = punctual.schedule_repeat(bad).await else { panic!("it was not refused") };
    let fields: Vec<_> = invalid.0.iter().map(|error| error.field.as_str()).collect();
    assert_eq!(fields, ["priority", "cronExpression"]);
    assert_eq!(punctual.schedules(&ScheduleFilter::default(), Page::first(9)).await, Ok(vec![]));
    assert_eq!(punctual.schedule(ScheduleId::generate()).await, Ok(None));
    punctual.stop().await.unwrap();
}
