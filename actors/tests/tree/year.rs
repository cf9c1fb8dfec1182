//! A year of schedules: every fire in the ledger is one that a plain walk through the year finds, and
//! the other way round.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, TimeDelta, Utc, Weekday};
use jiff::Timestamp;
use jiff::tz::TimeZone;
use punctual_actors::{Handlers, Settings};
use punctual_domain::calendar::Calendar;
use punctual_domain::clock::Clock;
use punctual_domain::schedule::{Definition, OverlapPolicy, Rhythm, Schedule};
use punctual_domain::store::{FireFilter, Page};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Route, TopicDefinition};

use crate::support::{World, eventually};

const DAYS: i64 = 365;
/// All clocks change, and all schedules fire, on a quarter of an hour.
const QUARTER: TimeDelta = TimeDelta::minutes(15);

const ZONES: [&str; 12] = [
    "America/New_York",
    "America/Edmonton",
    "America/Santiago",
    "America/Havana",
    "Europe/London",
    "Europe/Berlin",
    "Africa/Cairo",
    "Asia/Beirut",
    "Asia/Jerusalem",
    "Australia/Sydney",
    "Australia/Lord_Howe",
    "Pacific/Chatham",
];

/// What a zone's clocks show at an instant.
fn local(zone: &TimeZone, at: DateTime<Utc>) -> NaiveDateTime {
    let offset = zone.to_offset(Timestamp::from_second(at.timestamp()).unwrap());
    at.naive_utc() + TimeDelta::seconds(offset.seconds().into())
}

/// The instant at which a zone's clocks first show a local time or jump past it.
fn reached(zone: &TimeZone, wanted: NaiveDateTime) -> DateTime<Utc> {
    let mut at = wanted.and_utc() - TimeDelta::hours(16);
    while local(zone, at) < wanted {
        at += QUARTER;
    }
    at
}

/// A schedule and the instants a plain walk finds for it: whether each makes a task.
struct Expected {
    schedule: Schedule,
    instants: BTreeMap<DateTime<Utc>, bool>,
}

#[tokio::test]
async fn a_year_of_fires_is_the_year_that_a_plain_walk_finds() {
    let world = World::new().await;
    let start = world.clock.now();
    let end = start + TimeDelta::days(DAYS);
    let days = |from: i64| (from..=DAYS + 1).map(move |day| (start + TimeDelta::days(day)).date_naive());
    let closed: [NaiveDate; 2] = ["2026-12-25".parse().unwrap(), "2027-01-01".parse().unwrap()];
    let weekend = vec![Weekday::Sat, Weekday::Sun];
    world.store.put_calendar(&Calendar { name: "weekend".into(), dates: [].into(), weekdays: weekend }).await.unwrap();
    let holidays = Calendar { name: "holidays".into(), dates: closed.into(), weekdays: vec![] };
    world.store.put_calendar(&holidays).await.unwrap();

    let mut all = Vec::new();
    let schedule = |name: &str, cron: &str, zone: &str, calendars: &[&str]| {
        let topic = "report".parse().unwrap();
        let mut definition = Definition::new(name, Rhythm::Cron(cron.into()), zone, &topic);
        definition.overlap_policy = OverlapPolicy::Allow;
        definition.exclude_calendars = calendars.iter().map(|name| (*name).to_owned()).collect();
        Schedule::new(definition, start, &ZoneDatabase::bundled()).unwrap()
    };
    for name in ZONES {
        let zone = TimeZone::get(name).unwrap();
        let instants = days(-1).map(|date| (reached(&zone, date.and_hms_opt(2, 30, 0).unwrap()), true)).collect();
        all.push(Expected { schedule: schedule(&format!("daily {name}"), "30 2 * * *", name, &[]), instants });
    }
    let lord_howe = TimeZone::get("Australia/Lord_Howe").unwrap();
    let quarters = (0..=DAYS * 96).map(|n| start + QUARTER * n as i32);
    let on_the_quarter = |at: &DateTime<Utc>| local(&lord_howe, *at).and_utc().timestamp() % 900 == 0;
    all.push(Expected {
        schedule: schedule("quarters", "*/15 * * * *", "Australia/Lord_Howe", &[]),
        instants: quarters.filter(on_the_quarter).map(|at| (at, true)).collect(),
    });
    let berlin = TimeZone::get("Europe/Berlin").unwrap();
    let is_last = |date: &NaiveDate| date.succ_opt().unwrap().month() != date.month();
    all.push(Expected {
        schedule: schedule("month ends", "0 0 L * *", "Europe/Berlin", &[]),
        instants: days(-1)
            .filter(is_last)
            .map(|date| (reached(&berlin, date.and_hms_opt(0, 0, 0).unwrap()), true))
            .collect(),
    });
    let is_open = |date: NaiveDate| date.weekday().num_days_from_monday() < 5 && !closed.contains(&date);
    all.push(Expected {
        schedule: schedule("workdays", "30 8 * * *", "Pacific/Chatham", &["weekend", "holidays"]),
        instants: {
            let zone = TimeZone::get("Pacific/Chatham").unwrap();
            days(-1).map(|date| (reached(&zone, date.and_hms_opt(8, 30, 0).unwrap()), is_open(date))).collect()
        },
    });
    for expected in &mut all {
        expected.instants.retain(|at, _| *at > start && *at <= end);
        world.store.create_schedule(&expected.schedule, None).await.unwrap();
    }

    // The tasks are not what this is about.
    let mut paused = TopicDefinition::new("report".parse().unwrap(), Route::Event);
    paused.paused = true;
    world.store.put_topic(&paused).await.unwrap();
    let settings = Settings {
        misfire_threshold: Duration::from_secs(86_400),
        retention: Duration::from_secs(86_400 * 1_000),
        ..Settings::default()
    };
    let tree = world.start_with(Handlers::default(), settings).await;
    while world.clock.now() < end {
        world.clock.advance(TimeDelta::hours(12));
        eventually(|| async {
            let next = world.store.next_tick_at().await.unwrap();
            next.fire_at.is_some_and(|at| at > world.clock.now()).then_some(())
        })
        .await;
    }
    for Expected { schedule, instants } in all {
        let mut ledger = BTreeMap::new();
        let mut page = Page::first(1_000);
        loop {
            let fires = world.store.fires(schedule.id, &FireFilter::default(), page).await.unwrap();
            let Some(last) = fires.last() else { break };
            page.after = Some(last.id);
            for fire in fires {
                let again = match fire.until {
                    None => ledger.insert(fire.scheduled_at, true),
                    // A run of days that a calendar excludes.
                    Some(until) => {
                        let run = instants.range(fire.scheduled_at..=until);
                        assert_eq!(run.clone().count() as u64, fire.count, "{fire:?}");
                        run.map(|(at, _)| ledger.insert(*at, false)).fold(None, Option::or)
                    }
                };
                assert_eq!(again, None, "{} is there twice", fire.scheduled_at);
            }
        }
        assert_eq!(ledger.len(), instants.len(), "{}", schedule.definition.name);
        assert_eq!(ledger, instants, "{}", schedule.definition.name);
    }
    tree.drain(Duration::from_secs(5)).await.unwrap();
}
