//! Named cases: what schedules do when clocks change, and at the edges of time.

use chrono::{DateTime, Datelike, NaiveDate, NaiveDateTime, Utc, Weekday};
use punctual_domain::time::{
    DstFold, DstGap, DstPolicy, Expression, ExpressionError, NextFire, Note, Recurrence, Resolution, Style,
    ZoneDatabase,
};

fn at(text: &str) -> DateTime<Utc> {
    text.parse().expect("an instant")
}

fn local(text: &str) -> NaiveDateTime {
    text.parse().expect("a local time")
}

fn cron(expression: &str, zone: &str) -> Recurrence {
    cron_with(expression, zone, DstPolicy::default())
}

fn cron_with(expression: &str, zone: &str, dst: DstPolicy) -> Recurrence {
    Recurrence::Cron {
        expression: Expression::parse(expression).expect("an expression"),
        zone: ZoneDatabase::bundled().zone(zone).expect("a zone"),
        dst,
    }
}

const SKIP: DstPolicy = DstPolicy { gap: Some(DstGap::Skip), fold: None };
const NEXT_VALID: DstPolicy = DstPolicy { gap: Some(DstGap::NextValid), fold: None };
const FIRST: DstPolicy = DstPolicy { gap: None, fold: Some(DstFold::First) };
const BOTH: DstPolicy = DstPolicy { gap: None, fold: Some(DstFold::Both) };

/// Asserts the next instants; all share the date and zone of the question.
#[track_caller]
fn assert_next(recurrence: &Recurrence, after: &str, expected: &[&str]) {
    let next: Vec<DateTime<Utc>> = recurrence.upcoming(at(after)).take(expected.len()).map(|fire| fire.at).collect();
    let expected: Vec<DateTime<Utc>> = expected.iter().map(|text| at(text)).collect();
    assert_eq!(next, expected);
}

#[test]
fn edmonton_keeps_its_summer_clocks_in_november_2026() {
    assert_next(&cron("30 8 * * *", "America/Edmonton"), "2026-11-16T00:00:00Z", &["2026-11-16T14:30:00Z"]);
}

#[test]
fn a_point_in_a_gap_fires_at_its_end_unless_told_to_skip() {
    let after = "2026-03-08T00:00:00Z";
    let point = |dst| cron_with("30 2 * * *", "America/New_York", dst);
    let kept = ["2026-03-08T07:00:00Z", "2026-03-09T06:30:00Z"];
    assert_next(&point(DstPolicy::default()), after, &kept);
    assert_next(&point(NEXT_VALID), after, &kept);
    assert_next(&point(SKIP), after, &["2026-03-09T06:30:00Z"]);
}

#[test]
fn a_point_in_a_fold_fires_first_unless_told_both() {
    let after = "2026-11-01T00:00:00Z";
    let point = |dst| cron_with("30 1 * * *", "America/New_York", dst);
    let once = ["2026-11-01T05:30:00Z", "2026-11-02T06:30:00Z"];
    assert_next(&point(DstPolicy::default()), after, &once);
    assert_next(&point(FIRST), after, &once);
    assert_next(&point(BOTH), after, &["2026-11-01T05:30:00Z", "2026-11-01T06:30:00Z", "2026-11-02T06:30:00Z"]);
    assert_next(&point(BOTH), "2026-11-01T05:30:00Z", &["2026-11-01T06:30:00Z"]);
}

#[test]
fn a_cadence_skips_a_gap_unless_told_to_catch_up() {
    let after = "2026-03-08T06:45:00Z";
    let cadence = |dst| cron_with("20,50 * * * *", "America/New_York", dst);
    let skipped = ["2026-03-08T06:50:00Z", "2026-03-08T07:20:00Z"];
    assert_next(&cadence(DstPolicy::default()), after, &skipped);
    assert_next(&cadence(SKIP), after, &skipped);
    assert_next(&cadence(NEXT_VALID), after, &["2026-03-08T06:50:00Z", "2026-03-08T07:00:00Z", "2026-03-08T07:20:00Z"]);
}

#[test]
fn a_cadence_runs_through_a_fold_unless_told_first() {
    let after = "2026-11-01T04:45:00Z";
    let cadence = |dst| cron_with("0,30 * * * *", "America/New_York", dst);
    let both = [
        "2026-11-01T05:00:00Z",
        "2026-11-01T05:30:00Z",
        "2026-11-01T06:00:00Z",
        "2026-11-01T06:30:00Z",
        "2026-11-01T07:00:00Z",
    ];
    assert_next(&cadence(DstPolicy::default()), after, &both);
    assert_next(&cadence(BOTH), after, &both);
    assert_next(&cadence(FIRST), after, &["2026-11-01T05:00:00Z", "2026-11-01T05:30:00Z", "2026-11-01T07:00:00Z"]);
}

#[test]
fn a_cadence_that_would_lose_a_date_fires_once_at_the_end_of_the_gap() {
    let after = "2026-03-08T00:00:00Z";
    let cadence = |dst| cron_with("*/15 2 * * *", "America/New_York", dst);
    assert_next(&cadence(DstPolicy::default()), after, &["2026-03-08T07:00:00Z", "2026-03-09T06:00:00Z"]);
    assert_next(&cadence(SKIP), after, &["2026-03-09T06:00:00Z"]);
    // Half past one is left of the date: nothing is lost.
    assert_next(
        &cron("*/30 1-2 * * *", "America/New_York"),
        "2026-03-08T06:15:00Z",
        &["2026-03-08T06:30:00Z", "2026-03-09T05:00:00Z"],
    );
}

#[test]
fn a_date_that_never_was_fires_when_the_next_one_begins() {
    let after = "2011-12-29T12:00:00Z";
    // Samoa left out 30 December 2011.
    assert_next(
        &cron("30 8 * * *", "Pacific/Apia"),
        after,
        &["2011-12-29T18:30:00Z", "2011-12-30T10:00:00Z", "2011-12-30T18:30:00Z"],
    );
    assert_next(&cron("30 8 30 12 *", "Pacific/Apia"), after, &["2011-12-30T10:00:00Z", "2012-12-29T18:30:00Z"]);
    assert_next(
        &cron("*/30 8 * * *", "Pacific/Apia"),
        "2011-12-29T18:30:00Z",
        &["2011-12-30T10:00:00Z", "2011-12-30T18:00:00Z"],
    );
    // The lost midnight and the one that ends the gap are one instant.
    assert_next(
        &cron("0 0 * * *", "Pacific/Apia"),
        "2011-12-29T10:00:00Z",
        &["2011-12-30T10:00:00Z", "2011-12-31T10:00:00Z"],
    );
}

#[test]
fn a_gap_across_midnight_fires_on_the_date_it_lands_on_for_the_date_asked_for() {
    // Clocks in Nuuk jump from Saturday 23:00 to Sunday 00:00.
    let recurrence = cron("30 23 * * 6", "America/Nuuk");
    let fires: Vec<NextFire> = recurrence.upcoming(at("2026-03-22T12:00:00Z")).take(2).collect();
    assert_eq!(fires[0].at, at("2026-03-29T01:00:00Z"));
    assert_eq!(fires[0].local, local("2026-03-29T00:00:00"));
    assert_eq!(fires[0].note, Some(Note::Gap));
    assert_eq!(fires[1].at, at("2026-04-05T00:30:00Z"));
    assert_eq!(fires[1].note, None);
}

#[test]
fn half_hour_changes_move_only_half_an_hour() {
    // Lord Howe goes from +10:30 to +11 at 02:00, and back at 02:00 of summer time.
    let recurrence = cron("15 2 * * *", "Australia/Lord_Howe");
    assert_next(&recurrence, "2026-10-03T00:00:00Z", &["2026-10-03T15:30:00Z"]);
    assert_next(
        &cron("45 1 * * *", "Australia/Lord_Howe"),
        "2026-04-04T12:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-05T15:15:00Z"],
    );
    assert_next(
        &cron("45 * * * *", "Australia/Lord_Howe"),
        "2026-04-04T14:00:00Z",
        &["2026-04-04T14:45:00Z", "2026-04-04T15:15:00Z", "2026-04-04T16:15:00Z"],
    );
}

#[test]
fn zones_whose_winter_is_the_exception_behave_like_any_other() {
    assert_next(
        &cron("30 1 * * *", "Europe/Dublin"),
        "2026-03-28T12:00:00Z",
        &["2026-03-29T01:00:00Z", "2026-03-30T00:30:00Z"],
    );
    // Ramadan 2025 in Morocco: an hour back on 23 February, forward again on 6 April.
    assert_next(
        &cron("30 2 * * *", "Africa/Casablanca"),
        "2025-02-22T12:00:00Z",
        &["2025-02-23T01:30:00Z", "2025-02-24T02:30:00Z"],
    );
    assert_next(
        &cron("30 2 * * *", "Africa/Casablanca"),
        "2025-04-05T12:00:00Z",
        &["2025-04-06T02:00:00Z", "2025-04-07T01:30:00Z"],
    );
}

#[test]
fn zones_without_changes_are_plain() {
    for (zone, expected) in [
        ("UTC", "2026-06-01T02:30:00Z"),
        ("Asia/Tokyo", "2026-06-01T17:30:00Z"),
        ("Asia/Kathmandu", "2026-06-01T20:45:00Z"),
        ("Etc/GMT+5", "2026-06-01T07:30:00Z"),
    ] {
        assert_next(&cron("30 2 * * *", zone), "2026-06-01T00:00:00Z", &[expected]);
    }
}

#[test]
fn a_fraction_of_a_second_is_neither_fired_again_nor_skipped() {
    let recurrence = cron("30 8 * * *", "UTC");
    assert_next(&recurrence, "2026-06-01T08:29:59.999999999Z", &["2026-06-01T08:30:00Z"]);
    assert_next(&recurrence, "2026-06-01T08:30:00.000000001Z", &["2026-06-02T08:30:00Z"]);
    assert_next(
        &cron("* * * * * *", "UTC"),
        "1969-12-31T23:59:58.5Z",
        &["1969-12-31T23:59:59Z", "1970-01-01T00:00:00Z"],
    );
}

#[test]
fn previews_say_what_a_clock_change_did() {
    let recurrence = cron_with("30 1,2 * * *", "America/New_York", BOTH);
    let notes = |after: &str, count| -> Vec<(NaiveDateTime, i32, Option<Note>)> {
        recurrence.upcoming(at(after)).take(count).map(|fire| (fire.local, fire.offset_seconds, fire.note)).collect()
    };
    assert_eq!(
        notes("2026-03-08T05:00:00Z", 2),
        [(local("2026-03-08T01:30:00"), -18_000, None), (local("2026-03-08T03:00:00"), -14_400, Some(Note::Gap)),]
    );
    assert_eq!(
        notes("2026-11-01T04:00:00Z", 3),
        [
            (local("2026-11-01T01:30:00"), -14_400, Some(Note::Fold)),
            (local("2026-11-01T01:30:00"), -18_000, Some(Note::Fold)),
            (local("2026-11-01T02:30:00"), -18_000, None),
        ]
    );
}

#[test]
fn a_zone_names_what_a_local_time_is() {
    let zone = ZoneDatabase::bundled().zone("America/New_York").unwrap();
    assert_eq!(zone.resolve(local("2026-07-04T12:00:00")), Resolution::Unique { at: at("2026-07-04T16:00:00Z") });
    assert_eq!(zone.resolve(local("2026-03-08T02:30:00")), Resolution::Gap { end: at("2026-03-08T07:00:00Z") });
    assert_eq!(
        zone.resolve(local("2026-11-01T01:30:00")),
        Resolution::Fold { first: at("2026-11-01T05:30:00Z"), second: at("2026-11-01T06:30:00Z") }
    );
}

#[test]
fn a_schedule_that_only_ever_meets_skipped_gaps_has_no_next_fire() {
    let recurrence = cron_with("30 2 * 3 0#2", "America/New_York", SKIP);
    assert_eq!(recurrence.next_after(at("2026-01-01T00:00:00Z")), None);
}

#[test]
fn leap_days_are_found_across_a_century_and_on_a_weekday() {
    assert_next(&cron("0 0 29 2 *", "UTC"), "2092-03-01T00:00:00Z", &["2096-02-29T00:00:00Z", "2104-02-29T00:00:00Z"]);
    // `*/7` starts with a star, so both day fields must match: leap days on a Sunday.
    let mut after = at("1990-01-01T00:00:00Z");
    let recurrence = cron("0 0 29 2 */7", "UTC");
    for year in (1990..2500)
        .filter(|&year| NaiveDate::from_ymd_opt(year, 2, 29).is_some_and(|date| date.weekday() == Weekday::Sun))
    {
        after = recurrence.next_after(after).unwrap();
        assert_eq!((after.year(), after.month(), after.day()), (year, 2, 29));
    }
}

#[test]
fn both_day_fields_restricted_means_either_and_a_star_means_both() {
    assert_next(
        &cron("0 0 13 * 5", "UTC"),
        "2026-02-01T00:00:00Z",
        &["2026-02-06T00:00:00Z", "2026-02-13T00:00:00Z", "2026-02-20T00:00:00Z"],
    );
    // Odd days that are Mondays.
    assert_next(
        &cron("0 0 */2 * 1", "UTC"),
        "2026-02-01T00:00:00Z",
        &["2026-02-09T00:00:00Z", "2026-02-23T00:00:00Z", "2026-03-09T00:00:00Z"],
    );
}

#[test]
fn the_first_and_last_instants_neither_panic_nor_loop() {
    for zone in ["UTC", "America/New_York", "Pacific/Apia", "Africa/Casablanca"] {
        for expression in ["* * * * * *", "30 2 * * *", "0 0 29 2 */7", "0 0 31 12 5L"] {
            let recurrence = cron(expression, zone);
            for after in [
                DateTime::<Utc>::MIN_UTC,
                at("0001-01-01T00:00:00Z"),
                at("1883-11-18T17:00:00Z"),
                at("9998-12-31T23:59:59Z"),
                at("9999-12-31T23:59:59Z"),
                DateTime::<Utc>::MAX_UTC,
            ] {
                if let Some(next) = recurrence.next_after(after) {
                    assert!(next > after, "{expression} {zone} {after}");
                }
            }
            assert_eq!(recurrence.next_after(DateTime::<Utc>::MAX_UTC), None);
            assert!(recurrence.next_after(DateTime::<Utc>::MIN_UTC).is_some());
        }
    }
    let zone = ZoneDatabase::bundled().zone("America/New_York").unwrap();
    zone.resolve(NaiveDateTime::MIN);
    zone.resolve(NaiveDateTime::MAX);
}

#[test]
fn the_style_is_read_off_the_time_fields() {
    for (expression, style) in [
        ("*/15 * * * *", Style::Cadence),
        ("0 */2 * * *", Style::Cadence),
        ("*/15 2 * * *", Style::Cadence),
        ("*/10 30 2 * * *", Style::Cadence),
        ("*,30 2 * * *", Style::Cadence),
        ("@hourly", Style::Cadence),
        ("30 2 * * *", Style::Point),
        ("0,30 2,14 * * *", Style::Point),
        ("0-59/15 2 * * *", Style::Point),
        ("15 0-23 * * *", Style::Point),
        ("0,30 15 2 * * *", Style::Point),
        ("@daily", Style::Point),
        ("@midnight", Style::Point),
    ] {
        let parsed = Expression::parse(expression).unwrap();
        assert_eq!(parsed.style(), style, "{expression}");
        assert_eq!(parsed.to_string(), expression);
    }
}

#[test]
fn different_spellings_of_a_schedule_fire_alike() {
    for (one, other) in [
        ("@midnight", "@daily"),
        ("@annually", "@yearly"),
        ("@WEEKLY", "0 0 * * sun"),
        ("0 0 * * 7", "0 0 * * 0"),
        ("0 0 * * 5-7", "0 0 * * FRI,SAT,SUN"),
        ("0 0 * * 7L", "0 0 * * SUNL"),
        ("0 0 * * 7#2", "0 0 * * sun#2"),
        ("*/60 * * * *", "0,0 * * * *"),
        ("\t0  0 * * *  ", "0 0 ? * ?"),
        ("0 0 L,LW * *", "0 0 LW,L * *"),
        ("0 0 * * 1-7", "0 0 * * 0-6"),
        ("0 0 007 * *", "0 0 7 * *"),
    ] {
        let fires = |expression| -> Vec<DateTime<Utc>> {
            cron(expression, "UTC").upcoming(at("2026-01-01T12:00:00Z")).take(50).map(|fire| fire.at).collect()
        };
        assert_eq!(fires(one), fires(other), "{one} and {other}");
    }
}

#[test]
fn what_can_never_fire_is_told_apart_from_what_cannot_be_read() {
    for expression in [
        "0 0 30 2 *",
        "0 0 31 4,6 *",
        "0 0 30,31 FEB ?",
        "0 0 30W 2 *",
        "0 0 31W 2,4,6,9,11 *",
        "0 0 30 2 */2",
        "0 0 */31 * 1#2",
        "* * * 31 2 *",
    ] {
        let error = Expression::parse(expression).unwrap_err();
        assert!(matches!(error, ExpressionError::NeverFires { .. }), "{error}");
    }
    for expression in
        ["0 0 29 2 *", "0 0 30 2 1", "0 0 31 2,4 SAT", "0 0 * 2 1#5", "0 0 L 2 *", "0 0 29W 2 *", "0 0 31 12 5L"]
    {
        Expression::parse(expression).unwrap();
    }
}

#[test]
fn every_refusal_says_what_to_change() {
    for (expression, says) in [
        ("", "it is empty, write five fields or @daily"),
        (
            "0 0 * *",
            "its number of fields is 4, write five (minute hour day-of-month month day-of-week) or six with seconds first",
        ),
        ("61 0 * * *", "minute \"61\" is out of range, use 0 to 59"),
        ("0 0 * * 8", "day-of-week \"8\" is out of range, use 0 to 7"),
        ("0 0 * 99999999999999 *", "month \"99999999999999\" is out of range, use 1 to 12"),
        ("5/15 * * * *", "in the minute field \"5/15\" is a step without a range, write \"5-59/15\" or \"*/15\""),
        ("0 22-3 * * *", "in the hour field the range \"22-3\" runs backwards, write \"22-23,0-3\""),
        ("0 0 * * FRI-MON", "in the day-of-week field the range \"FRI-MON\" runs backwards, write \"5-6,0-1\""),
        ("*/0 * * * *", "the minute field \"*/0\" needs a step from 1 to 60 after the slash"),
        ("*/61 * * * *", "the minute field \"*/61\" needs a step from 1 to 60 after the slash"),
        ("0 0 1,,15 * *", "the day-of-month field \"1,,15\" has an empty list item, remove the extra comma"),
        (
            "MON * * * *",
            "\"MON\" cannot be read in the minute field, use 0 to 59, alone or as \"a-b\", \"a-b/step\", \"*\", \"*/step\"",
        ),
        (
            "0 0 * FEBR *",
            "\"FEBR\" cannot be read in the month field, use 1 to 12 or JAN to DEC, alone or as \"a-b\", \"a-b/step\", \"*\", \"*/step\"",
        ),
        (
            "0 0 15X * *",
            "\"15X\" cannot be read in the day-of-month field, use 1 to 31, alone or as \"a-b\", \"a-b/step\", \"*\", \"*/step\", \"?\", \"L\", \"LW\", \"15W\"",
        ),
        (
            "0 0 L-3 * *",
            "\"L-3\" cannot be read in the day-of-month field, only \"L\" and \"LW\" count from the end of the month",
        ),
        (
            "0 0 * * L",
            "\"L\" alone says nothing in the day-of-week field, write \"6L\" for the last Saturday of the month",
        ),
        ("0 0 * * 1#6", "\"1#6\" in the day-of-week field needs a number from 1 to 5 after the #"),
        ("@reboot", "@reboot names no time, and a schedule outlives restarts"),
        ("@every 5m", "there is no such macro, use @hourly, @daily, @weekly, @monthly, @yearly or five fields"),
        ("0 0 * *\n*", "it holds the character '\\n', write it in plain ASCII on one line"),
    ] {
        let error = Expression::parse(expression).unwrap_err().to_string();
        assert_eq!(error, format!("cron expression {expression:?} is not valid: {says}"));
    }
    assert_eq!(
        Expression::parse("0 0 30 2 *").unwrap_err().to_string(),
        "cron expression \"0 0 30 2 *\" can never fire: no month it names has such a day, change the day-of-month or the month"
    );
    let long = Expression::parse(&"1,".repeat(5_000)).unwrap_err().to_string();
    assert!(long.len() < 200, "{long}");
}

#[test]
fn extensions_of_other_crons_are_refused() {
    for expression in [
        "H * * * *",
        "0 0 * * 1-5L",
        "0 0 * * MON-FRI#2",
        "0 0 1-5W * *",
        "0 0 W * *",
        "0 0 0W * *",
        "0 0 32W * *",
        "0 0 L/2 * *",
        "0 0 ?/2 * *",
        "? 0 * * *",
        "0 ? * * *",
        "0 0 * ? *",
        "0 0 * * +MON",
        "0 0 * * 1##2",
        "0 0 * * L5",
        "0 0 1,? * *",
        "0 0 WL * *",
        "~ 0 * * *",
        "0 0 * * 1,L",
        "TZ=UTC 0 0 * * *",
        "*-5 * * * *",
        "1-* * * * *",
    ] {
        assert!(Expression::parse(expression).is_err(), "{expression}");
    }
}
