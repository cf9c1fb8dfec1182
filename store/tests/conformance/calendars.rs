//! Calendars that exclude fires.

use chrono::Weekday;
use punctual_domain::calendar::Calendar;
use punctual_domain::json::Json;
use punctual_domain::store::{Answer, Remember, Reply, StoreError};

use crate::support::*;

fn calendar(name: &str) -> Calendar {
    let dates = ["2026-12-25", "2027-01-01"].map(|date| date.parse().unwrap()).into();
    Calendar { name: name.into(), dates, weekdays: vec![Weekday::Sat, Weekday::Sun] }
}

pub(crate) async fn a_calendar_is_written_and_replaced(world: World) {
    assert_eq!(world.put_calendar(&calendar("feiertage ü")).await, Ok(true));
    assert_eq!(world.calendars().await, Ok(vec![calendar("feiertage ü")]));
    let emptied = Calendar { dates: Default::default(), weekdays: vec![], ..calendar("feiertage ü") };
    assert_eq!(world.put_calendar(&emptied).await, Ok(false));
    assert_eq!(world.calendars().await, Ok(vec![emptied]));
}

pub(crate) async fn calendars_are_listed_by_name(world: World) {
    for name in ["b", "c", "a"] {
        world.put_calendar(&calendar(name)).await.unwrap();
    }
    assert_eq!(world.calendars().await, Ok(["a", "b", "c"].map(calendar).into()));
}

pub(crate) async fn a_calendar_is_deleted_once(world: World) {
    world.put_calendar(&calendar("holidays")).await.unwrap();
    assert_eq!(world.delete_calendar("Holidays").await, Ok(false));
    assert_eq!(world.delete_calendar("holidays").await, Ok(true));
    assert_eq!(world.delete_calendar("holidays").await, Ok(false));
    assert_eq!(world.calendars().await, Ok(vec![]));
}

pub(crate) async fn a_calendar_in_use_is_not_deleted(world: World) {
    world.put_calendar(&calendar("holidays")).await.unwrap();
    world.put_calendar(&calendar("holiday")).await.unwrap();
    let mut schedule = world.unwritten("nightly");
    schedule.definition.exclude_calendars = vec!["other \"one\"".into(), "holidays".into()];
    // A number that fits into no column of numbers does not get in the way.
    schedule.definition.payload = Json::parse(format!("0.{}1", "0".repeat(20_000))).unwrap();
    world.put_calendar(&calendar("other \"one\"")).await.unwrap();
    world.create_schedule(&schedule).await.unwrap();
    assert_eq!(world.delete_calendar("holidays").await, Err(StoreError::CalendarInUse("nightly".into())));
    assert_eq!(world.calendars().await.unwrap().len(), 3);
    // A name that only looks alike is not in use.
    assert_eq!(world.delete_calendar("holiday").await, Ok(true));

    schedule.definition.exclude_calendars.clear();
    world.update_schedule(&schedule).await.unwrap();
    assert_eq!(world.delete_calendar("holidays").await, Ok(true));
}

pub(crate) async fn a_calendar_of_a_deleted_schedule_can_be_deleted(world: World) {
    world.put_calendar(&calendar("holidays")).await.unwrap();
    let mut schedule = world.unwritten("nightly");
    schedule.definition.exclude_calendars = vec!["holidays".into()];
    // Words elsewhere in a schedule do not count.
    let mut talker = world.unwritten("holidays");
    talker.definition.description = Some("\"holidays\"".into());
    world.create_schedule(&schedule).await.unwrap();
    world.create_schedule(&talker).await.unwrap();
    world.delete_schedule(schedule.id).await.unwrap();
    assert_eq!(world.delete_calendar("holidays").await, Ok(true));
}

pub(crate) async fn a_calendar_is_created_once(world: World) {
    let remember = |body: &'static str| {
        let answer = Box::new(move |_: &Calendar| Answer { status: 201, body: body.into() });
        Some(Remember { owner: "me".into(), key: "k".into(), fingerprint: "f".into(), answer })
    };
    let first = world.create_calendar(&calendar("holidays"), remember("first")).await;
    assert_eq!(first, Ok(Reply::Made(calendar("holidays"))));
    let again = world.create_calendar(&calendar("holidays"), remember("second")).await;
    assert_eq!(again, Ok(Reply::Replayed(Answer { status: 201, body: "first".into() })));
    let other = Calendar { weekdays: vec![], ..calendar("holidays") };
    let taken = world.create_calendar(&other, None).await;
    assert_eq!(taken, Err(StoreError::NameTaken("holidays".into())));
    assert_eq!(world.calendars().await, Ok(vec![calendar("holidays")]));
}

pub(crate) async fn a_calendar_is_not_deleted_while_a_schedule_comes_to_name_it(world: World) {
    let other = world.another_node().await;
    for round in 0..20 {
        let name = format!("calendar {round}");
        world.put_calendar(&calendar(&name)).await.unwrap();
        let mut schedule = world.unwritten(&format!("schedule {round}"));
        schedule.definition.exclude_calendars = vec![name.clone()];
        let (made, deleted) = tokio::join!(world.create_schedule(&schedule), other.delete_calendar(&name));
        let is_there = world.calendars().await.unwrap().iter().any(|calendar| calendar.name == name);
        match (made, deleted) {
            (Ok(_), Err(StoreError::CalendarInUse(_))) => assert!(is_there, "round {round}"),
            (Err(StoreError::UnknownCalendar(_)), Ok(true)) => assert!(!is_there, "round {round}"),
            both => panic!("round {round}: {both:?}"),
        }
    }
}
