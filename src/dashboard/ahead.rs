//! The next hour: the fires and tasks that come, minute by minute.

use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use maud::{Markup, html};
use punctual_domain::calendar::Calendar;
use punctual_domain::outlook::Outlook;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::ComingTask;
use punctual_domain::time::ZoneDatabase;

use super::chart::{self, Column};
use super::form::encoded;
use super::lately::within;
use super::overview::{DEADLINE, FRESH, PATIENCE, instant};
use super::parts::{Tone, ago, clock, empty, number, table, zone_clock};
use super::schedules::rhythm;
use crate::http::Api;

/// How much of what comes is shown.
const HOUR: TimeDelta = TimeDelta::hours(1);
/// How many schedules are looked at for what comes next.
pub(super) const SCHEDULES: u32 = 200;
/// How many tasks are looked at for what comes next.
const TASKS: u32 = 500;
/// A schedule that fires more often than this in an hour is named once: it would hide all others.
const OFTEN: usize = 60;
/// How many of those are named.
const OFTEN_NAMED: usize = 12;
/// How many of the schedules and topics that come next are named.
const NAMED: usize = 8;
/// From when on a schedule whose instant has passed is late: deciding takes a moment.
pub(super) const LATE: TimeDelta = TimeDelta::seconds(10);

/// What comes next.
pub(super) struct Ahead {
    /// When it was looked: whether something was late then is judged by that, however old the look is by now.
    at: DateTime<Utc>,
    /// Overdue schedules first.
    pub(super) schedules: Vec<Schedule>,
    /// The coming fires: which of the schedules, and when.
    fires: Vec<(DateTime<Utc>, usize)>,
    /// Those of the schedules that fire too often to be drawn.
    pub(super) often: Vec<usize>,
    /// The tasks that become due within the hour.
    pub(super) tasks: Vec<ComingTask>,
}

/// Something that happens within the hour.
#[derive(Clone, Copy)]
enum Coming<'a> {
    Fire(&'a Schedule),
    Task(&'a ComingTask),
}

impl Coming<'_> {
    fn name(&self) -> &str {
        match self {
            Self::Fire(schedule) => &schedule.definition.name,
            Self::Task(task) => &task.topic,
        }
    }
}

impl Ahead {
    /// What becomes of these schedules within the next hour.
    fn of(
        schedules: Vec<Schedule>,
        tasks: Vec<ComingTask>,
        calendars: &[Calendar],
        zones: &ZoneDatabase,
        now: DateTime<Utc>,
    ) -> Self {
        let end = now + HOUR;
        let (mut fires, mut often) = (Vec::new(), Vec::new());
        for (i, schedule) in schedules.iter().enumerate() {
            let Ok(outlook) = Outlook::new(schedule, calendars, zones) else { continue };
            let after = schedule.fired_through.map_or(now, |through| through.max(now));
            match outlook.between(after + TimeDelta::microseconds(1), end, OFTEN) {
                Ok(found) => fires.extend(found.instants.into_iter().map(|at| (at, i))),
                Err(_) => often.push(i),
            }
        }
        fires.sort_unstable();
        // By name: in the order of their next fires they would change places all the time.
        often.sort_by(|one: &usize, other| schedules[*one].definition.name.cmp(&schedules[*other].definition.name));
        Self { at: now, schedules, fires, often, tasks }
    }

    /// Everything that comes from now on, in order; some may have come since it was looked.
    fn coming(&self, now: DateTime<Utc>) -> Vec<(DateTime<Utc>, Coming<'_>)> {
        let fires = self.fires.iter().map(|(at, i)| (*at, Coming::Fire(&self.schedules[*i])));
        let tasks = self.tasks.iter().map(|task| (task.run_at, Coming::Task(task)));
        let mut coming: Vec<_> = fires.chain(tasks).filter(|(at, _)| *at >= now).collect();
        coming.sort_by_key(|(at, _)| *at);
        coming
    }

    /// The schedules that were late when it was looked, and by how much.
    pub(super) fn late(&self) -> Vec<(String, TimeDelta)> {
        let by = |schedule: &Schedule| Some((schedule.definition.name.clone(), self.at - schedule.next_fire_at?));
        self.schedules.iter().filter_map(by).filter(|(_, by)| *by > LATE).collect()
    }
}

/// What comes next, as it was seen a moment ago.
pub(super) async fn lately(api: &Api) -> Option<Arc<Ahead>> {
    let (store, zones, now) = (Arc::clone(&api.store), api.zones.clone(), api.time.now());
    let look = move |_| async move {
        let reading = async {
            let tasks = store.coming_tasks(now, now + HOUR, TASKS);
            tokio::try_join!(store.next_schedules(SCHEDULES), tasks, store.calendars())
        };
        let (schedules, tasks, calendars) = within(DEADLINE, "what fires next", reading).await?;
        Ok(tokio::task::spawn_blocking(move || Ahead::of(schedules, tasks, &calendars, &zones, now)).await?)
    };
    api.glances.ahead.get(FRESH, PATIENCE, look).await
}

/// What comes next, drawn and named.
pub(super) fn timeline(zones: &ZoneDatabase, ahead: Option<&Ahead>, now: DateTime<Utc>) -> Markup {
    let nothing = Ahead { at: now, schedules: Vec::new(), fires: Vec::new(), often: Vec::new(), tasks: Vec::new() };
    let known = ahead.unwrap_or(&nothing);
    let Ahead { schedules, often, .. } = known;
    let coming = known.coming(now);
    let tasks = coming.iter().filter(|(_, what)| matches!(what, Coming::Task(_))).count();
    let fires = coming.len() - tasks;
    // By what was looked at: some of those may have come since, and there are still more behind the last.
    let more = if known.tasks.len() >= TASKS as usize { "+" } else { "" };
    let mut columns: Vec<_> = (0..HOUR.num_minutes())
        .map(|minute| Column { title: format!("in {minute} min: nothing"), value: 0, bad: 0 })
        .collect();
    for (at, what) in &coming {
        let minute = usize::try_from((*at - now).num_minutes().max(0)).unwrap_or_default();
        let Some(column) = columns.get_mut(minute) else { continue };
        column.value += 1;
        let name = what.name();
        column.title = match column.value {
            1 => format!("in {minute} min: {name}"),
            2..=5 => format!("{}, {name}", column.title),
            6 => format!("{}, …", column.title),
            _ => std::mem::take(&mut column.title),
        };
    }
    let counted = html! {
        (number(fires as u64)) @if fires == 1 { " fire" } @else { " fires" }
        @if tasks > 0 {
            ", " a href={ "/tasks?status=pending&from=" (encoded(&instant(now))) "&to=" (encoded(&instant(now + HOUR))) } {
                (number(tasks as u64)) (more) @if tasks == 1 { " task" } @else { " tasks" }
            }
        }
    };
    let about = format!(
        "How many fires and tasks come in each minute of the next hour: {fires} fires and {tasks}{more} tasks in all"
    );
    let mut named = HashSet::new();
    let rows: Vec<_> = coming
        .iter()
        .filter(|(_, what)| named.insert((matches!(what, Coming::Task(_)), what.name())))
        .take(NAMED)
        .map(|(at, what)| {
            let (what, timezone) = match what {
                Coming::Fire(Schedule { id, definition, .. }) => (
                    html! { a href={ "/schedules/" (id) } { (definition.name) } span.sub { (definition.topic) } },
                    &definition.timezone,
                ),
                Coming::Task(task) => (
                    html! { a href={ "/tasks/" (task.task_id) } { (task.topic) } span.sub { "a task" } },
                    &task.timezone,
                ),
            };
            let zone = zones.zone(timezone).ok();
            vec![ago(*at, now), what, clock(*at), html! { @if let Some(zone) = &zone { (zone_clock(*at, zone)) } }]
        })
        .collect();
    html! {
        div.head {
            h2 #ahead-title { "The next hour" }
            span.hint {
                @if schedules.len() == SCHEDULES as usize { "the " (SCHEDULES) " schedules that come first: " }
                (counted)
                @if !often.is_empty() { ", and those more than once a minute" }
            }
        }
        @if !often.is_empty() { (all_the_time(schedules, often)) }
        @if ahead.is_none() {
            (empty("What comes next is being looked at."))
        } @else if coming.is_empty() && !often.is_empty() {
            (empty("Nothing else fires within the next hour."))
        } @else if coming.is_empty() {
            (empty("Nothing fires within the next hour. Coming fires and tasks are drawn here, minute by minute."))
        } @else {
            (chart::columns(&about, &columns, Tone::Busy))
            div.axis { span { "now" } span { "in 15 min" } span { "in 30 min" } span { "in 45 min" } span { "in 60 min" } }
            (table("What fires next", &["In", "Schedule or task", "Your time", "Its own zone"], &rows))
        }
    }
}

/// What fires so often that it is always there: one band for all of it.
fn all_the_time(schedules: &[Schedule], often: &[usize]) -> Markup {
    html! {
        div.band {
            h3 { "More than once a minute" }
            ul.often {
                @for Schedule { id, definition, .. } in often.iter().take(OFTEN_NAMED).map(|i| &schedules[*i]) {
                    li { a href={ "/schedules/" (id) } { (definition.name) } " " span.dim { (rhythm(&definition.rhythm)) } }
                }
                @if often.len() > OFTEN_NAMED { li.dim { "and " (often.len() - OFTEN_NAMED) " more" } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use punctual_domain::id::TaskId;
    use punctual_domain::schedule::{Definition, Rhythm};

    use super::*;

    fn scheduled(name: &str, rhythm: Rhythm, now: DateTime<Utc>) -> Schedule {
        let definition = Definition::new(name, rhythm, "UTC", &"t".parse().unwrap());
        Schedule::new(definition, now, &ZoneDatabase::bundled()).unwrap()
    }

    #[test]
    fn what_fires_all_the_time_hides_nothing_else() {
        let now = "2026-11-18T12:00:30Z".parse().unwrap();
        let seconds = (0..30).map(|i| scheduled(&format!("second {i}"), Rhythm::Every(1_000), now));
        let others = [
            scheduled("minutely", Rhythm::Cron("* * * * *".into()), now),
            scheduled("hourly", Rhythm::Cron("0 * * * *".into()), now),
        ];
        let ahead = Ahead::of(seconds.chain(others).collect(), Vec::new(), &[], &ZoneDatabase::bundled(), now);
        let names: Vec<_> = ahead.often.iter().map(|i| &*ahead.schedules[*i].definition.name).collect();
        assert!(names.len() == 30 && names.is_sorted(), "{names:?}");
        assert_eq!(ahead.fires.len(), 61);
        assert_eq!(ahead.fires.last().unwrap().0, "2026-11-18T13:00:00Z".parse::<DateTime<Utc>>().unwrap());
        assert!(ahead.fires.iter().any(|(_, i)| ahead.schedules[*i].definition.name == "hourly"));
    }

    #[test]
    fn schedules_are_late_by_the_time_of_the_look() {
        let at: DateTime<Utc> = "2026-11-18T12:00:30Z".parse().unwrap();
        let due = |name: &str, seconds| {
            let schedule = scheduled(name, Rhythm::Cron("0 * * * *".into()), at);
            Schedule { next_fire_at: Some(at + TimeDelta::seconds(seconds)), ..schedule }
        };
        let schedules = vec![due("late", -11), due("decided now", -10), due("next", 20)];
        let ahead = Ahead::of(schedules, Vec::new(), &[], &ZoneDatabase::bundled(), at);
        assert_eq!(ahead.late(), [("late".to_owned(), TimeDelta::seconds(11))]);
    }

    #[test]
    fn tasks_that_were_cut_off_are_not_forgotten_once_the_first_has_come() {
        let at: DateTime<Utc> = "2026-11-18T12:00:30Z".parse().unwrap();
        let task = |second| ComingTask {
            task_id: TaskId::generate(),
            topic: "mail".into(),
            timezone: "UTC".into(),
            run_at: at + TimeDelta::seconds(second),
        };
        let zones = ZoneDatabase::bundled();
        for (looked_at, said) in
            [(500, [">499+ tasks<", " 499+ tasks in all"]), (499, [">498 tasks<", " 498 tasks in all"])]
        {
            let ahead = Ahead::of(Vec::new(), (0..looked_at).map(task).collect(), &[], &zones, at);
            let page = timeline(&zones, Some(&ahead), at + TimeDelta::milliseconds(1)).into_string();
            assert!(said.iter().all(|part| page.contains(part)), "{looked_at}: {page}");
        }
    }
}
