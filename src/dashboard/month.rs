//! `/schedules/calendar`: a month, and what fires on each of its days. One zone, which the page names, says which day and which
//! time that is; where the clocks of a schedule's own zone show another, that stands beside.

use std::collections::BTreeSet;

use axum::response::Response;
use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc, Weekday};
use maud::{Markup, html};
use punctual_domain::calendar::Calendar;
use punctual_domain::id::ScheduleId;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::time::{Zone, ZoneDatabase};

use super::form::{Form, encoded};
use super::layout::Place;
use super::parts::empty;
use super::schedules::rhythm;
use super::visitor::Visitor;
use crate::http::problem::{Code, Problem};

/// How many schedules are shown, those that fire next first.
const SCHEDULES: u32 = 300;
/// A schedule that fires more often than this in a month is named once, and not on each day.
const OFTEN: usize = 100;
/// How many fires of a day are named.
const NAMED: usize = 6;
/// The zone of the page where nobody asks for another.
const ZONE: &str = "UTC";

/// One fire of a month.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    /// By the clocks of the page's zone.
    at: NaiveDateTime,
    name: String,
    id: ScheduleId,
    /// By the clocks of its own.
    own: NaiveDateTime,
    own_zone: String,
}

/// What happens in a month.
#[derive(Default)]
struct Month {
    entries: Vec<Entry>,
    /// Schedules that fire too often to be listed day by day.
    often: Vec<Schedule>,
    /// The zones of all schedules, for people to choose from.
    zones: BTreeSet<String>,
}

/// `GET /schedules/calendar`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let asked = Form::of(visitor.uri.query().unwrap_or_default()).unwrap_or_default();
    let zone = asked.text("zone").unwrap_or(ZONE);
    let zone = visitor.api.zones.zone(zone).map_err(|error| Problem::invalid("zone", error.to_string()))?;
    let today = local(visitor.now, &zone).date();
    let first = match asked.text("month") {
        None => today.with_day(1).unwrap_or(today),
        Some(text) => NaiveDate::parse_from_str(&format!("{text}-01"), "%Y-%m-%d")
            .ok()
            .filter(|first| (1970..=2200).contains(&first.year()))
            .ok_or_else(|| Problem::invalid("month", "must be a month such as 2026-11"))?,
    };
    let (schedules, calendars) =
        tokio::try_join!(visitor.api.store.next_schedules(SCHEDULES), visitor.api.store.calendars())?;
    let (count, zones) = (schedules.len(), visitor.api.zones.clone());
    let shown_in = zone.clone();
    let month = tokio::task::spawn_blocking(move || month(schedules, &calendars, &zones, &shown_in, first));
    let month = month.await.map_err(|_| Problem::new(Code::Internal, "the month could not be computed"))?;
    let body = page(&month, zone.name(), first, today, count);
    Ok(visitor.page(Place::Schedules, "Calendar", &body))
}

/// What the clocks of a zone show.
fn local(at: DateTime<Utc>, zone: &Zone) -> NaiveDateTime {
    at.naive_utc() + TimeDelta::seconds(zone.offset_seconds_at(at).into())
}

fn month(
    schedules: Vec<Schedule>,
    calendars: &[Calendar],
    zones: &ZoneDatabase,
    shown_in: &Zone,
    first: NaiveDate,
) -> Month {
    let end = first + Months::new(1);
    // Wherever the zone is, its month lies within these.
    let from = first.and_time(NaiveTime::MIN).and_utc() - TimeDelta::hours(26);
    let to = end.and_time(NaiveTime::MIN).and_utc() + TimeDelta::hours(26);
    let mut month = Month::default();
    for schedule in schedules {
        let Ok(outlook) = Outlook::new(&schedule, calendars, zones) else { continue };
        let Ok(zone) = zones.zone(&schedule.definition.timezone) else { continue };
        month.zones.insert(schedule.definition.timezone.clone());
        // It never fires before it was made.
        let Ok(found) = outlook.between(from.max(schedule.created_at), to, OFTEN) else {
            month.often.push(schedule);
            continue;
        };
        let definition = &schedule.definition;
        month.entries.extend(found.instants.into_iter().filter_map(|at| {
            let shown_at = local(at, shown_in);
            (first..end).contains(&shown_at.date()).then(|| Entry {
                at: shown_at,
                name: definition.name.clone(),
                id: schedule.id,
                own: local(at, &zone),
                own_zone: definition.timezone.clone(),
            })
        }));
    }
    month.entries.sort();
    month
}

fn page(month: &Month, zone: &str, first: NaiveDate, today: NaiveDate, count: usize) -> Markup {
    let named = |month: NaiveDate| month.format("%Y-%m").to_string();
    let path = |month: NaiveDate| format!("/schedules/calendar?month={}&zone={}", named(month), encoded(zone));
    html! {
        p.trail { a href="/schedules" { "Schedules" } " /" }
        div.head {
            h1 { (first.format("%B %Y")) }
            nav.actions aria-label="Other months" {
                @if let Some(before) = first.pred_opt() { a.button href=(path(before)) { "Month before" } }
                a.button href={ "/schedules/calendar?zone=" (encoded(zone)) } { "This month" }
                a.button href=(path(first + Months::new(1))) { "Month after" }
            }
        }
        div.head {
            p {
                "Days and times are those of " strong { (zone) } ". "
                span.hint {
                    "Beside them stands what the clocks of a schedule's own zone show, where that differs. These are the fires that enabled schedules ask for from now on"
                    @if count == SCHEDULES as usize { ", of the " (SCHEDULES) " that fire next" } "."
                }
            }
            form.filters method="get" action="/schedules/calendar" {
                input type="hidden" name="month" value=(named(first));
                label { "Time zone" input name="zone" value=(zone) list="zones" spellcheck="false" autocomplete="off"; }
                datalist #zones { @for zone in std::iter::once(ZONE).chain(month.zones.iter().map(String::as_str).filter(|zone| *zone != ZONE)) { option value=(zone) {} } }
                button type="submit" { "Show" }
            }
        }
        @if !month.often.is_empty() {
            section.sheet aria-labelledby="often-title" {
                h2 #often-title { "More than " (OFTEN) " times this month" }
                ul.often {
                    @for schedule in month.often.iter().take(60) {
                        li { a href={ "/schedules/" (schedule.id) } { (schedule.definition.name) } " " span.dim { (rhythm(&schedule.definition.rhythm)) } }
                    }
                    @if month.often.len() > 60 { li.dim { "and " (month.often.len() - 60) " more" } }
                }
            }
        }
        section #month.sheet aria-label="Days" {
            @if month.entries.is_empty() && month.often.is_empty() { (empty("No schedule asks for a fire from now on in this month. What has fired is on each schedule's page.")) }
            (days(month, first, today))
        }
    }
}

/// A month in weeks, from Monday on; on a phone the days that have something, one below the other.
fn days(month: &Month, first: NaiveDate, today: NaiveDate) -> Markup {
    let start = first.week(Weekday::Mon).first_day();
    let end = first + Months::new(1);
    html! {
        div.month role="list" {
            @for name in ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] { div.weekday aria-hidden="true" { (name) } }
            @for day in start.iter_days().take(42).take_while(|day| *day < end || day.weekday() != Weekday::Mon) {
                @let entries: Vec<_> = month.entries.iter().filter(|entry| entry.at.date() == day).collect();
                @let is_other = day < first || day >= end;
                div.day.other[is_other].today[day == today].free[entries.is_empty()] role="listitem" {
                    div.date { (day.format("%-d")) span.long { (day.format(" %a")) } }
                    @for entry in entries.iter().take(NAMED) {
                        a href={ "/schedules/" (entry.id) } title={ (entry.name) " at " (entry.own) " " (entry.own_zone) } {
                            time { (entry.at.format("%H:%M")) } " " (entry.name)
                            @if let Some(own) = own_time(entry) { span.own { (own) } }
                        }
                    }
                    @if entries.len() > NAMED { span.hint { "+ " (entries.len() - NAMED) " more" } }
                }
            }
        }
    }
}

/// When it is by the clocks of its own zone, where those show something else.
fn own_time(entry: &Entry) -> Option<String> {
    let Entry { at, own, own_zone, .. } = entry;
    let format = if own.date() == at.date() { "%H:%M" } else { "%a %-d %b %H:%M" };
    (own != at).then(|| format!("{} {own_zone}", own.format(format)))
}

#[cfg(test)]
mod tests {
    use punctual_domain::schedule::{Definition, Rhythm};

    use super::*;

    fn made(cron: &str, zone: &str, shown_in: &str) -> Month {
        let zones = ZoneDatabase::bundled();
        let definition = Definition::new("s", Rhythm::Cron(cron.into()), zone, &"t".parse().unwrap());
        let created_at = "2026-01-01T00:00:00Z".parse().unwrap();
        let schedule = Schedule::new(definition, created_at, &zones).unwrap();
        let first = NaiveDate::from_ymd_opt(2026, 11, 1).unwrap();
        month(vec![schedule], &[], &zones, &zones.zone(shown_in).unwrap(), first)
    }

    #[test]
    fn a_fire_stands_on_the_day_of_the_zone_that_is_shown_with_its_own_time_beside() {
        let [eve, first] = ["Mon 30 Nov 03:30 Pacific/Auckland", "Tue 1 Dec 03:30 Pacific/Auckland"].map(Some);
        let same_day = Some("03:30 Pacific/Auckland");
        // 03:30 in Auckland is the day before in UTC: the first of November is in October there, that of December in November.
        for (shown_in, expected) in [
            ("Pacific/Auckland", [("01 03:30", None), ("30 03:30", None)]),
            ("UTC", [("29 14:30", eve), ("30 14:30", first)]),
            ("Asia/Tokyo", [("29 23:30", eve), ("30 23:30", first)]),
            ("Pacific/Fiji", [("01 02:30", same_day), ("30 02:30", same_day)]),
        ] {
            let month = made("30 3 1,30 * *", "Pacific/Auckland", shown_in);
            let found: Vec<_> =
                month.entries.iter().map(|entry| (entry.at.format("%d %H:%M").to_string(), own_time(entry))).collect();
            assert_eq!(found, expected.map(|(at, own)| (at.to_owned(), own.map(str::to_owned))), "{shown_in}");
        }
    }

    #[test]
    fn what_fires_often_is_named_once() {
        let month = made("*/5 * * * *", "UTC", "UTC");
        assert_eq!((month.entries.len(), month.often.len()), (0, 1));
    }
}
