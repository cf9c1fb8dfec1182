//! `/schedules/calendar`: a month, what fired on each of its days until now, and what fires from now on. One zone, which the page
//! names, says which day and which time that is; where the clocks of a schedule's own zone show another, that stands beside.

use std::collections::{BTreeSet, BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::response::Response;
use chrono::{DateTime, Datelike, Months, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta, Utc, Weekday};
use maud::{Markup, html};
use punctual_domain::calendar::Calendar;
use punctual_domain::id::ScheduleId;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::{Rhythm, Schedule};
use punctual_domain::store::{Fired, FiredSchedule, StoreError};
use punctual_domain::time::{Resolution, Zone, ZoneDatabase};

use super::form::{Form, encoded};
use super::lately::{Lately, within};
use super::layout::Place;
use super::overview::DEADLINE;
use super::parts::{empty, number};
use super::schedules::rhythm;
use super::visitor::Visitor;
use crate::http::Api;
use crate::http::problem::Problem;

/// How many schedules are looked at, those that fire next first.
const SCHEDULES: u32 = 10_000;
/// A schedule that fires more often than this in a month is named once, and not on each day.
const OFTEN: usize = 100;
/// How many of those are named.
const OFTEN_NAMED: usize = 60;
/// How many fires of a day are named, and how many schedules that fired on it.
const NAMED: usize = 6;
/// How many fires of a past day are looked at, and how many failures.
const FIRED: u32 = 2_000;
/// The zone of the page where nobody asks for another.
const ZONE: &str = "UTC";
/// How long the page waits for the first look at very many schedules; later ones show what was seen before.
const PATIENCE: Duration = Duration::from_secs(5);
/// How many months are remembered.
const MONTHS: usize = 16;

/// The months that somebody looked at.
#[derive(Default)]
pub(crate) struct Seen(Mutex<HashMap<Asked, Arc<Lately<Month>>>>);

/// The first day of a month, and a zone.
type Asked = (NaiveDate, String);

impl Seen {
    fn of(&self, first: NaiveDate, zone: &str) -> Arc<Lately<Month>> {
        let mut months = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (first, zone.to_owned());
        if months.len() >= MONTHS && !months.contains_key(&key) {
            months.clear();
        }
        Arc::clone(months.entry(key).or_default())
    }
}

/// One fire of a month.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct Entry {
    at: DateTime<Utc>,
    name: String,
    id: ScheduleId,
    /// By the clocks of the page's zone.
    shown: NaiveDateTime,
    /// By the clocks of its own.
    own: NaiveDateTime,
    own_zone: String,
}

/// What happens in a month.
struct Month {
    days: Vec<Day>,
    /// Schedules that fire too often to be listed day by day: the first of them, and how many there are.
    often: Vec<Often>,
    often_count: usize,
    /// How many schedules were looked at.
    schedules: usize,
    /// The zones of all schedules, for people to choose from.
    zones: BTreeSet<String>,
}

/// What happens on a day.
struct Day {
    date: NaiveDate,
    from: DateTime<Utc>,
    /// Where the next one begins.
    to: DateTime<Utc>,
    /// What fired until now.
    fired: Fired,
    /// How many fires come, of schedules that do not fire often.
    coming: u64,
    /// The first of them.
    first: BinaryHeap<Entry>,
}

struct Often {
    id: ScheduleId,
    name: String,
    rhythm: Rhythm,
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
    let month = lately(&visitor.api, first, &zone).await;
    let body = page(month.as_deref(), &zone, first, today);
    Ok(visitor.page(Place::Schedules, "Calendar", &body))
}

/// A month as it is; where there is so much that it takes a while, as it was seen a moment ago.
async fn lately(api: &Api, first: NaiveDate, zone: &Zone) -> Option<Arc<Month>> {
    let (store, zones, shown_in, now) = (Arc::clone(&api.store), api.zones.clone(), zone.clone(), api.time.now());
    let look = move |_| async move {
        let mut month = Month::of(first, &shown_in);
        let fired = async {
            for day in month.days.iter_mut().filter(|day| day.from < now) {
                day.fired = store.fired(day.from, day.to.min(now), FIRED, NAMED as u32).await?;
            }
            Ok::<_, StoreError>(())
        };
        let reading = async { tokio::try_join!(store.next_schedules(SCHEDULES), store.calendars(), fired) };
        let (schedules, calendars, ()) = within(DEADLINE, "what fires in a month", reading).await?;
        let come = move || {
            month.come(&schedules, &calendars, &zones, &shown_in, now);
            month
        };
        Ok(tokio::task::spawn_blocking(come).await?)
    };
    api.glances.months.of(first, zone.name()).get(Duration::ZERO, PATIENCE, look).await
}

/// What the clocks of a zone show.
fn local(at: DateTime<Utc>, zone: &Zone) -> NaiveDateTime {
    at.naive_utc() + TimeDelta::seconds(zone.offset_seconds_at(at).into())
}

/// When a date begins in a zone.
fn start_of(date: NaiveDate, zone: &Zone) -> DateTime<Utc> {
    match zone.resolve(date.and_time(NaiveTime::MIN)) {
        Resolution::Unique { at } => at,
        Resolution::Gap { end } => end,
        Resolution::Fold { first, .. } => first,
    }
}

impl Month {
    /// One in which nothing happens yet.
    fn of(first: NaiveDate, shown_in: &Zone) -> Self {
        let dates: Vec<_> = first.iter_days().take_while(|date| date.month() == first.month()).collect();
        let starts = dates.iter().map(|date| start_of(*date, shown_in));
        let ends = starts.clone().skip(1).chain([start_of(first + Months::new(1), shown_in)]);
        let day =
            |((date, from), to)| Day { date, from, to, fired: Fired::default(), coming: 0, first: BinaryHeap::new() };
        Self {
            days: dates.iter().copied().zip(starts).zip(ends).map(day).collect(),
            often: Vec::new(),
            often_count: 0,
            schedules: 0,
            zones: BTreeSet::new(),
        }
    }

    /// Adds what these schedules ask for from now on.
    fn come(
        &mut self,
        schedules: &[Schedule],
        calendars: &[Calendar],
        zones: &ZoneDatabase,
        shown_in: &Zone,
        now: DateTime<Utc>,
    ) {
        let (Some(from), Some(to)) = (self.days.first().map(|day| day.from), self.days.last().map(|day| day.to)) else {
            return;
        };
        self.schedules = schedules.len();
        for schedule in schedules {
            let definition = &schedule.definition;
            let Ok(outlook) = Outlook::new(schedule, calendars, zones) else { continue };
            let Ok(zone) = zones.zone(&definition.timezone) else { continue };
            if !self.zones.contains(&definition.timezone) {
                self.zones.insert(definition.timezone.clone());
            }
            let after = schedule.fired_through.map_or(now, |through| now.max(through + TimeDelta::microseconds(1)));
            let Ok(found) = outlook.between(from.max(after), to, OFTEN) else {
                self.often_count += 1;
                if self.often.len() < OFTEN_NAMED {
                    let (name, rhythm) = (definition.name.clone(), definition.rhythm.clone());
                    self.often.push(Often { id: schedule.id, name, rhythm });
                }
                continue;
            };
            for at in found.instants {
                let place = self.days.partition_point(|day| day.to <= at);
                let Some(day) = self.days.get_mut(place) else { continue };
                day.come(at, &definition.name, || Entry {
                    at,
                    name: definition.name.clone(),
                    id: schedule.id,
                    shown: local(at, shown_in),
                    own: local(at, &zone),
                    own_zone: definition.timezone.clone(),
                });
            }
        }
        self.often.sort_by(|one, other| one.name.cmp(&other.name));
    }

    fn day(&self, date: NaiveDate) -> Option<&Day> {
        self.days.iter().find(|day| day.date == date)
    }
}

impl Day {
    /// Counts a fire, and keeps it if it is one of the first.
    fn come(&mut self, at: DateTime<Utc>, name: &str, entry: impl FnOnce() -> Entry) {
        self.coming += 1;
        let is_full = self.first.len() >= NAMED;
        if !is_full || self.first.peek().is_some_and(|last| (at, name) < (last.at, &*last.name)) {
            self.first.push(entry());
            if is_full {
                self.first.pop();
            }
        }
    }

    fn is_free(&self) -> bool {
        self.coming == 0 && self.fired == Fired::default()
    }
}

fn page(month: Option<&Month>, shown_in: &Zone, first: NaiveDate, today: NaiveDate) -> Markup {
    let zone = shown_in.name();
    let named = |month: NaiveDate| month.format("%Y-%m").to_string();
    let path = |month: NaiveDate| format!("/schedules/calendar?month={}&zone={}", named(month), encoded(zone));
    let zones = month.iter().flat_map(|month| &month.zones).map(String::as_str).filter(|zone| *zone != ZONE);
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
                    "Until now these are the fires that made a task, as the ledger still has them; from now on those that enabled schedules ask for"
                    @if month.is_some_and(|month| month.schedules == SCHEDULES as usize) {
                        ", of the " (number(SCHEDULES.into())) " schedules that fire next"
                    }
                    ". Beside these stands what the clocks of a schedule's own zone show, where that differs."
                }
            }
            form.filters method="get" action="/schedules/calendar" {
                input type="hidden" name="month" value=(named(first));
                label { "Time zone" input name="zone" value=(zone) list="zones" spellcheck="false" autocomplete="off"; }
                datalist #zones { @for zone in std::iter::once(ZONE).chain(zones) { option value=(zone) {} } }
                button type="submit" { "Show" }
            }
        }
        section #month.sheet data-live aria-label="Days" {
            @match month {
                None => { (empty("There is much to look at: the month appears here once that is done.")) }
                Some(month) => {
                    @if month.often_count > 0 { (often(month)) }
                    @if month.often_count == 0 && month.days.iter().all(Day::is_free) {
                        (empty("Nothing fired in this month that the ledger still has, and no schedule asks for a fire from now on."))
                    }
                    (days(month, shown_in, first, today))
                }
            }
        }
    }
}

/// What fires so often that it would hide all others.
fn often(month: &Month) -> Markup {
    html! {
        div.band {
            h3 { "More than " (OFTEN) " times from now on in this month" }
            ul.often {
                @for schedule in &month.often {
                    li { a href={ "/schedules/" (schedule.id) } { (schedule.name) } " " span.dim { (rhythm(&schedule.rhythm)) } }
                }
                @if month.often_count > month.often.len() { li.dim { "and " (number((month.often_count - month.often.len()) as u64)) " more" } }
            }
        }
    }
}

/// A month in weeks, from Monday on; on a phone the days that have something, one below the other.
fn days(month: &Month, shown_in: &Zone, first: NaiveDate, today: NaiveDate) -> Markup {
    let start = first.week(Weekday::Mon).first_day();
    let end = first + Months::new(1);
    html! {
        div.month role="list" {
            @for name in ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"] { div.weekday aria-hidden="true" { (name) } }
            @for date in start.iter_days().take(42).take_while(|date| *date < end || date.weekday() != Weekday::Mon) {
                @let day = month.day(date);
                div.day.other[day.is_none()].today[date == today].free[day.is_none_or(Day::is_free)] role="listitem" {
                    div.date { (date.format("%-d")) span.long { (date.format(" %a")) } }
                    @if let Some(day) = day { (fired(&day.fired, shown_in)) (coming(day)) }
                }
            }
        }
    }
}

/// What fired on a day: how much, then the schedules, those that failed first.
fn fired(fired: &Fired, shown_in: &Zone) -> Markup {
    let many = |count: u64| format!("{}{}", number(count), if count == u64::from(FIRED) { "+" } else { "" });
    html! {
        @if *fired != Fired::default() {
            div.fired {
                (many(fired.fires)) " fired"
                @if fired.failures > 0 { ", " span.bad { (many(fired.failures)) " failed" } }
            }
        }
        @for FiredSchedule { schedule_id, name, at, fires, failures } in &fired.schedules {
            @let name = name.as_deref().unwrap_or("deleted since");
            a.bad[*failures > 0] href={ "/schedules/" (schedule_id) } title=(told(name, *fires, *failures)) {
                @if *failures > 0 { "✗ " } @else { "✓ " }
                @if *fires == 1 { time { (local(*at, shown_in).format("%H:%M")) } " " }
                (name)
                @if *fires > 1 { span.dim { " ×" (number(*fires)) } }
            }
        }
    }
}

/// What became of a schedule on a day, as a sentence.
fn told(name: &str, fires: u64, failures: u64) -> String {
    let fired = match fires {
        0 => "fired on a day before".to_owned(),
        1 => "fired once".to_owned(),
        _ => format!("fired {} times", number(fires)),
    };
    match failures {
        0 => format!("{name} {fired}"),
        1 => format!("{name} {fired}, and a task of it failed"),
        _ => format!("{name} {fired}, and {} of its tasks failed", number(failures)),
    }
}

/// What comes on a day: the first of it, and how much more.
fn coming(day: &Day) -> Markup {
    let entries = day.first.clone().into_sorted_vec();
    let more = day.coming - entries.len() as u64;
    html! {
        @for entry in &entries {
            a href={ "/schedules/" (entry.id) } title={ (entry.name) " at " (entry.own) " " (entry.own_zone) } {
                time { (entry.shown.format("%H:%M")) } " " (entry.name)
                @if let Some(own) = own_time(entry) { span.own { (own) } }
            }
        }
        @if more > 0 { span.hint { "+ " (number(more)) " more" } }
    }
}

/// When it is by the clocks of its own zone, where those show something else.
fn own_time(entry: &Entry) -> Option<String> {
    let Entry { shown, own, own_zone, .. } = entry;
    let format = if own.date() == shown.date() { "%H:%M" } else { "%a %-d %b %H:%M" };
    (own != shown).then(|| format!("{} {own_zone}", own.format(format)))
}

#[cfg(test)]
mod tests {
    use punctual_domain::schedule::Definition;

    use super::*;

    /// What comes in November 2026 from `now` on, by schedules with these expressions.
    fn made(crons: &[&str], zone: &str, shown_in: &str, now: &str) -> Month {
        let zones = ZoneDatabase::bundled();
        let made = |(i, cron): (usize, &&str)| {
            let definition =
                Definition::new(format!("s{i:04}"), Rhythm::Cron((*cron).into()), zone, &"t".parse().unwrap());
            Schedule::new(definition, "2026-01-01T00:00:00Z".parse().unwrap(), &zones).unwrap()
        };
        let schedules: Vec<_> = crons.iter().enumerate().map(made).collect();
        let shown_in = zones.zone(shown_in).unwrap();
        let mut month = Month::of(NaiveDate::from_ymd_opt(2026, 11, 1).unwrap(), &shown_in);
        month.come(&schedules, &[], &zones, &shown_in, now.parse().unwrap());
        month
    }

    fn entries(month: &Month) -> Vec<Entry> {
        month.days.iter().flat_map(|day| day.first.clone().into_sorted_vec()).collect()
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
            let month = made(&["30 3 1,30 * *"], "Pacific/Auckland", shown_in, "2026-01-01T00:00:00Z");
            let entries = entries(&month);
            let on_its_day = |entry: &Entry| {
                month.day(entry.shown.date()).is_some_and(|day| day.first.iter().any(|other| other == entry))
            };
            assert!(entries.iter().all(on_its_day), "{shown_in}");
            let found: Vec<_> =
                entries.iter().map(|entry| (entry.shown.format("%d %H:%M").to_string(), own_time(entry))).collect();
            assert_eq!(found, expected.map(|(at, own)| (at.to_owned(), own.map(str::to_owned))), "{shown_in}");
        }
    }

    #[test]
    fn what_fires_often_is_named_once() {
        let month = made(&["*/5 * * * *"], "UTC", "UTC", "2026-01-01T00:00:00Z");
        assert_eq!((entries(&month).len(), month.often.len(), month.often_count), (0, 1, 1));
        let many = made(&["*/5 * * * *"; OFTEN_NAMED + 2], "UTC", "UTC", "2026-01-01T00:00:00Z");
        assert_eq!((many.often.len(), many.often_count), (OFTEN_NAMED, OFTEN_NAMED + 2));
    }

    #[test]
    fn what_has_passed_does_not_come_and_of_what_comes_the_first_are_named() {
        let crons: Vec<_> = (0..10).rev().map(|hour| format!("0 {hour} * * *")).collect();
        let crons: Vec<_> = crons.iter().map(String::as_str).collect();
        let month = made(&crons, "UTC", "UTC", "2026-11-28T05:30:00Z");
        let told: Vec<_> =
            month.days.iter().filter(|day| day.coming > 0).map(|day| (day.date.day(), day.coming)).collect();
        assert_eq!(told, [(28, 4), (29, 10), (30, 10)]);
        let of = |date: usize| month.days[date - 1].first.clone().into_sorted_vec();
        let hours = |date| of(date).iter().map(|entry| entry.shown.format("%H").to_string()).collect::<Vec<_>>();
        assert_eq!(hours(28), ["06", "07", "08", "09"]);
        assert_eq!(hours(29), ["00", "01", "02", "03", "04", "05"]);
        let utc = ZoneDatabase::bundled().zone("UTC").unwrap();
        let page = page(Some(&month), &utc, month.days[0].date, month.days[27].date).into_string();
        assert_eq!(page.matches("+ 4 more").count(), 2, "{page}");
    }

    #[test]
    fn days_are_as_long_as_the_clocks_of_the_zone_make_them() {
        let zones = ZoneDatabase::bundled();
        let month = |zone: &str, year, month| {
            let days = Month::of(NaiveDate::from_ymd_opt(year, month, 1).unwrap(), &zones.zone(zone).unwrap()).days;
            let odd = |day: &Day| day.to - day.from != TimeDelta::days(1);
            let odd: Vec<_> = days
                .iter()
                .filter(|day| odd(day))
                .map(|day| (day.date.day(), (day.to - day.from).num_hours()))
                .collect();
            (days.len(), odd)
        };
        assert_eq!(month("UTC", 2028, 2), (29, vec![]));
        assert_eq!(month("Europe/Berlin", 2027, 3), (31, vec![(28, 23)]));
        assert_eq!(month("Europe/Berlin", 2027, 10), (31, vec![(31, 25)]));
        assert_eq!(month("Africa/Cairo", 2027, 4), (30, vec![(30, 23)]), "its clocks skip midnight");
    }

    #[test]
    fn what_failed_is_marked_and_what_is_only_counted_so_far_says_so() {
        let schedule = |name: Option<&str>, fires, failures| FiredSchedule {
            schedule_id: ScheduleId::generate(),
            name: name.map(str::to_owned),
            at: DateTime::UNIX_EPOCH,
            fires,
            failures,
        };
        let schedules = vec![schedule(Some("<report>"), 3, 2), schedule(None, 1, 0)];
        let tokyo = ZoneDatabase::bundled().zone("Asia/Tokyo").unwrap();
        let page = fired(&Fired { fires: FIRED.into(), failures: 2, schedules }, &tokyo).into_string();
        for part in [
            "2\u{202f}000+ fired",
            ">2 failed<",
            "✗ &lt;report&gt;",
            "×3",
            "✓ <time>09:00</time> deleted since",
            "2 of its tasks failed",
        ] {
            assert!(page.contains(part), "{part}: {page}");
        }
        assert_eq!(fired(&Fired::default(), &tokyo).into_string(), "");
    }

    #[test]
    fn few_months_are_remembered() {
        let seen = Seen::default();
        let first = NaiveDate::from_ymd_opt(2026, 11, 1).unwrap();
        let known = seen.of(first, "UTC");
        assert!(Arc::ptr_eq(&known, &seen.of(first, "UTC")));
        for months in 1..40 {
            seen.of(first + Months::new(months), "UTC");
        }
        assert!(seen.0.lock().unwrap().len() <= MONTHS);
    }
}
