//! `/schedules/calendar`: a month, and what fires on each of its days. A schedule's own zone says which day that is.

use axum::response::Response;
use chrono::{Datelike, Months, NaiveDate, NaiveTime, TimeDelta, Weekday};
use maud::{Markup, html};
use punctual_domain::calendar::Calendar;
use punctual_domain::id::ScheduleId;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::time::ZoneDatabase;

use super::form::Form;
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

/// One fire of a month.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    date: NaiveDate,
    time: NaiveTime,
    name: String,
    id: ScheduleId,
    zone: String,
}

/// What happens in a month.
#[derive(Default)]
struct Month {
    entries: Vec<Entry>,
    /// Schedules that fire too often to be listed day by day.
    often: Vec<Schedule>,
}

/// `GET /schedules/calendar`.
pub(crate) async fn show(visitor: Visitor) -> Result<Response, Problem> {
    let asked = Form::of(visitor.uri.query().unwrap_or_default()).unwrap_or_default();
    let today = visitor.now.date_naive();
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
    let month = tokio::task::spawn_blocking(move || month(schedules, &calendars, &zones, first));
    let month = month.await.map_err(|_| Problem::new(Code::Internal, "the month could not be computed"))?;
    let body = page(&month, first, today, count);
    Ok(visitor.page(Place::Schedules, "Calendar", &body))
}

fn month(schedules: Vec<Schedule>, calendars: &[Calendar], zones: &ZoneDatabase, first: NaiveDate) -> Month {
    let end = first + Months::new(1);
    // Wherever the zone is, its month lies within these.
    let from = first.and_time(NaiveTime::MIN).and_utc() - TimeDelta::hours(26);
    let to = end.and_time(NaiveTime::MIN).and_utc() + TimeDelta::hours(26);
    let mut month = Month::default();
    for schedule in schedules {
        let Ok(outlook) = Outlook::new(&schedule, calendars, zones) else { continue };
        let Ok(zone) = zones.zone(&schedule.definition.timezone) else { continue };
        // It never fires before it was made.
        let Ok(found) = outlook.between(from.max(schedule.created_at), to, OFTEN) else {
            month.often.push(schedule);
            continue;
        };
        let definition = &schedule.definition;
        month.entries.extend(found.instants.into_iter().filter_map(|at| {
            let local = at.naive_utc() + TimeDelta::seconds(zone.offset_seconds_at(at).into());
            let is_in = (first..end).contains(&local.date());
            is_in.then(|| Entry {
                date: local.date(),
                time: local.time(),
                name: definition.name.clone(),
                id: schedule.id,
                zone: definition.timezone.clone(),
            })
        }));
    }
    month.entries.sort();
    month
}

fn page(month: &Month, first: NaiveDate, today: NaiveDate, count: usize) -> Markup {
    let named = |month: NaiveDate| month.format("%Y-%m").to_string();
    let before = first.pred_opt().map(named);
    html! {
        p.trail { a href="/schedules" { "Schedules" } " /" }
        div.head {
            h1 { (first.format("%B %Y")) }
            nav.actions aria-label="Other months" {
                @if let Some(before) = before { a.button href={ "/schedules/calendar?month=" (before) } { "Month before" } }
                a.button href="/schedules/calendar" { "This month" }
                a.button href={ "/schedules/calendar?month=" (named(first + Months::new(1))) } { "Month after" }
            }
        }
        p.hint {
            "What enabled schedules ask for, each on the days of its own zone."
            @if count == SCHEDULES as usize { " Shown are the " (SCHEDULES) " that fire next." }
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
            @if month.entries.is_empty() && month.often.is_empty() { (empty("No schedule fires in this month. Each fire stands on its day here.")) }
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
                @let entries: Vec<_> = month.entries.iter().filter(|entry| entry.date == day).collect();
                @let is_other = day < first || day >= end;
                div.day.other[is_other].today[day == today].free[entries.is_empty()] role="listitem" {
                    div.date { (day.format("%-d")) span.long { (day.format(" %a")) } }
                    @for entry in entries.iter().take(NAMED) {
                        a href={ "/schedules/" (entry.id) } title={ (entry.name) " at " (entry.time) " " (entry.zone) } { time { (entry.time.format("%H:%M")) } " " (entry.name) }
                    }
                    @if entries.len() > NAMED { span.hint { "+ " (entries.len() - NAMED) " more" } }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::schedule::{Definition, Rhythm};

    use super::*;

    fn made(cron: &str, zone: &str) -> Month {
        let zones = ZoneDatabase::bundled();
        let definition = Definition::new("s", Rhythm::Cron(cron.into()), zone, &"t".parse().unwrap());
        let created_at = "2026-01-01T00:00:00Z".parse().unwrap();
        let schedule = Schedule::new(definition, created_at, &zones).unwrap();
        let first = NaiveDate::from_ymd_opt(2026, 11, 1).unwrap();
        month(vec![schedule], &[], &zones, first)
    }

    #[test]
    fn a_fire_stands_on_the_day_of_its_own_zone() {
        // 23:30 in Auckland is before noon in UTC; the first of November there begins in October elsewhere.
        let month = made("30 23 1,30 * *", "Pacific/Auckland");
        let days: Vec<_> = month.entries.iter().map(|entry| (entry.date.day(), entry.time.to_string())).collect();
        assert_eq!(days, [(1, "23:30:00".to_owned()), (30, "23:30:00".to_owned())]);
    }

    #[test]
    fn what_fires_often_is_named_once() {
        let month = made("*/5 * * * *", "UTC");
        assert_eq!((month.entries.len(), month.often.len()), (0, 1));
    }
}
