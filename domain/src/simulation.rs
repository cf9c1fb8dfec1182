//! What schedules would do in a stretch of time, added up minute by minute. Nothing is written anywhere.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};

use crate::calendar::Calendar;
use crate::schedule::{Schedule, ScheduleError};
use crate::time::{Recurrence, ZoneDatabase};

/// The longest stretch.
pub const MOST_DAYS: i64 = 366;
/// How many instants are looked at in all.
pub const MOST_INSTANTS: u64 = 20_000_000;

/// Why a simulation cannot be made.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SimulationError {
    /// Nothing lies between its two instants.
    #[error("from must be before to")]
    Empty,
    /// It is too long.
    #[error("from and to must be at most {MOST_DAYS} days apart")]
    TooLong,
    /// There is too much in it.
    #[error("more than {MOST_INSTANTS} fires: ask about a shorter stretch")]
    TooMany,
    /// A schedule cannot be understood.
    #[error(transparent)]
    Schedule(#[from] ScheduleError),
}

/// Fires by minute, over all schedules that were added.
pub struct Simulation {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    /// The store's present instant: a schedule that may fire so many times more uses them up from here on.
    now: DateTime<Utc>,
    minutes: Vec<u32>,
    looked_at: u64,
}

/// What one schedule would do.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Simulated {
    /// How many fires would make a task.
    pub fires: u64,
    /// How many a calendar would exclude.
    pub excluded: u64,
    /// The first fire.
    pub first: Option<DateTime<Utc>>,
    /// The last one.
    pub last: Option<DateTime<Utc>>,
}

/// A stretch of time, and what would fire in it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// When it begins.
    pub at: DateTime<Utc>,
    /// How many fires there are in it.
    pub fires: u64,
    /// Its busiest minute.
    pub peak_at: DateTime<Utc>,
    /// How many fires that has.
    pub peak: u64,
}

impl Simulation {
    /// An empty one.
    ///
    /// # Errors
    /// When the stretch is empty or too long.
    pub fn new(from: DateTime<Utc>, to: DateTime<Utc>, now: DateTime<Utc>) -> Result<Self, SimulationError> {
        if from >= to {
            return Err(SimulationError::Empty);
        }
        if to - from > TimeDelta::days(MOST_DAYS) {
            return Err(SimulationError::TooLong);
        }
        let minutes = (to - whole_minute(from)).num_minutes() + 1;
        Ok(Self { from, to, now, minutes: vec![0; minutes as usize], looked_at: 0 })
    }

    /// Adds what a schedule would do. A paused one does nothing, unless it resumes by itself.
    ///
    /// # Errors
    /// When it cannot be understood, or there is too much to look at.
    pub fn add(
        &mut self,
        schedule: &Schedule,
        calendars: &[Calendar],
        zones: &ZoneDatabase,
    ) -> Result<Simulated, SimulationError> {
        let mut simulated = Simulated::default();
        let Some(begins_at) = begins_at(schedule, self.from) else { return Ok(simulated) };
        let recurrence = schedule.definition.recurrence(zones, schedule.created_at)?;
        let named = &schedule.definition.exclude_calendars;
        let calendars: Vec<_> = calendars.iter().filter(|calendar| named.contains(&calendar.name)).collect();
        let zone = zones.zone(&schedule.definition.timezone).map_err(ScheduleError::from)?;
        let date = |at: DateTime<Utc>| -> NaiveDate { zone.local(at).date() };
        let mut left = schedule.definition.max_fires.map(|most| most.saturating_sub(schedule.fires_made));
        // What comes before the stretch counts only where it uses up fires.
        let begins_at = if left.is_some() { begins_at.min(self.now) } else { begins_at };
        let mut next = schedule.instant_after(&recurrence, begins_at - TimeDelta::microseconds(1));
        while let Some(at) = next.filter(|at| *at < self.to && left != Some(0)) {
            self.looked_at += 1;
            if self.looked_at > MOST_INSTANTS {
                return Err(SimulationError::TooMany);
            }
            let is_excluded = !calendars.is_empty() && {
                let date = date(at);
                calendars.iter().any(|calendar| calendar.excludes(date))
            };
            if !is_excluded {
                left = left.map(|left| left - 1);
            }
            if at >= self.from {
                simulated.excluded += u64::from(is_excluded);
                if !is_excluded {
                    simulated.fires += 1;
                    simulated.first.get_or_insert(at);
                    simulated.last = Some(at);
                    let minute = (at - whole_minute(self.from)).num_minutes() as usize;
                    self.minutes[minute] += 1;
                }
            }
            next = schedule.instant_after(&recurrence, at);
        }
        Ok(simulated)
    }

    /// All fires.
    pub fn fires(&self) -> u64 {
        self.minutes.iter().map(|fires| u64::from(*fires)).sum()
    }

    /// What fires in each hour, also where that is nothing.
    pub fn hours(&self) -> Vec<Stretch> {
        let first = whole_minute(self.from);
        let mut hours: Vec<Stretch> = Vec::new();
        for (i, fires) in self.minutes.iter().enumerate() {
            let minute = first + TimeDelta::minutes(i as i64);
            if minute >= self.to {
                break;
            }
            let hour = minute - TimeDelta::seconds(minute.timestamp().rem_euclid(3600));
            if hours.last().is_none_or(|last| last.at != hour) {
                hours.push(Stretch { at: hour, fires: 0, peak_at: minute, peak: 0 });
            }
            let Some(last) = hours.last_mut() else { continue };
            let fires = u64::from(*fires);
            last.fires += fires;
            if fires > last.peak {
                (last.peak, last.peak_at) = (fires, minute);
            }
        }
        hours
    }

    /// The busiest minutes with more than one fire, at most `most`, the busiest first.
    pub fn busiest(&self, most: usize) -> Vec<(DateTime<Utc>, u64)> {
        let first = whole_minute(self.from);
        let mut busy: Vec<(u32, usize)> = self
            .minutes
            .iter()
            .copied()
            .enumerate()
            .filter(|(_, fires)| *fires > 1)
            .map(|(i, fires)| (fires, i))
            .collect();
        busy.sort_unstable_by_key(|(fires, i)| (std::cmp::Reverse(*fires), *i));
        busy.truncate(most);
        busy.into_iter().map(|(fires, i)| (first + TimeDelta::minutes(i as i64), fires.into())).collect()
    }
}

/// Whether a schedule has an instant in a minute.
pub fn fires_in_minute(schedule: &Schedule, recurrence: &Recurrence, minute: DateTime<Utc>) -> bool {
    begins_at(schedule, minute).is_some_and(|from| {
        schedule
            .instant_after(recurrence, from - TimeDelta::microseconds(1))
            .is_some_and(|at| at < minute + TimeDelta::minutes(1))
    })
}

/// From when on a schedule fires, not before `from`; `None` if it is paused for good.
fn begins_at(schedule: &Schedule, from: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if schedule.enabled { Some(from) } else { schedule.paused_until.map(|until| until.max(from)) }
}

fn whole_minute(at: DateTime<Utc>) -> DateTime<Utc> {
    let micros = at.timestamp_micros().rem_euclid(60_000_000);
    at - TimeDelta::microseconds(micros)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Definition, Rhythm};

    fn at(text: &str) -> DateTime<Utc> {
        let text = if text.contains('T') { text.to_owned() } else { format!("2026-11-16T{text}Z") };
        text.parse().unwrap()
    }

    fn schedule(rhythm: Rhythm, zone: &str, change: impl FnOnce(&mut Definition)) -> Schedule {
        let mut definition = Definition::new("nightly", rhythm, zone, &"report".parse().unwrap());
        change(&mut definition);
        Schedule::new(definition, at("2026-11-01T00:00:00Z"), &ZoneDatabase::bundled()).unwrap()
    }

    fn cron(text: &str) -> Rhythm {
        Rhythm::Cron(text.into())
    }

    /// What one schedule does from noon until three, with weekends closed.
    fn simulate(schedule: &Schedule) -> (Simulated, Vec<u64>) {
        let mut simulation = Simulation::new(at("12:00:00"), at("15:00:00"), at("11:00:00")).unwrap();
        let closed = Calendar { name: "mondays".into(), dates: [].into(), weekdays: vec![chrono::Weekday::Mon] };
        let simulated = simulation.add(schedule, &[closed], &ZoneDatabase::bundled()).unwrap();
        assert_eq!(simulation.fires(), simulated.fires);
        (simulated, simulation.hours().iter().map(|hour| hour.fires).collect())
    }

    #[test]
    fn fires_are_counted_by_hour_within_all_bounds() {
        let plain = |rhythm| schedule(rhythm, "UTC", |_| {});
        for (what, schedule, fires, hours) in [
            ("a cadence", plain(cron("*/15 * * * *")), 12, [4, 4, 4]),
            ("a point", plain(cron("30 13 * * *")), 1, [0, 1, 0]),
            ("in its zone", schedule(cron("30 8 * * *"), "America/Edmonton", |_| {}), 1, [0, 0, 1]),
            ("an interval", plain(Rhythm::Every(1_000)), 10_800, [3_600, 3_600, 3_600]),
            ("with an end", schedule(cron("0 * * * *"), "UTC", |d| d.end_at = Some(at("13:30:00"))), 2, [1, 1, 0]),
            // One of the three is used up before the stretch begins.
            ("the last ones", schedule(cron("0 * * * *"), "UTC", |d| d.max_fires = Some(3)), 2, [1, 1, 0]),
            (
                "excluded",
                schedule(cron("0 * * * *"), "UTC", |d| d.exclude_calendars = vec!["mondays".into()]),
                0,
                [0, 0, 0],
            ),
        ] {
            let (simulated, by_hour) = simulate(&schedule);
            assert_eq!((simulated.fires, by_hour), (fires, hours.to_vec()), "{what}");
        }
    }

    #[test]
    fn what_is_paused_does_nothing_until_it_resumes() {
        let mut paused = schedule(cron("0 * * * *"), "UTC", |_| {});
        paused.enabled = false;
        assert_eq!(simulate(&paused).0, Simulated::default());
        paused.paused_until = Some(at("12:30:00"));
        assert_eq!(simulate(&paused).1, [0, 1, 1]);
    }

    #[test]
    fn peaks_are_told() {
        let mut simulation = Simulation::new(at("12:00:30"), at("14:00:00"), at("11:00:00")).unwrap();
        let zones = ZoneDatabase::bundled();
        for text in ["0 * * * *", "*/30 * * * *", "0 13 * * *", "15 13 * * *"] {
            simulation.add(&schedule(cron(text), "UTC", |_| {}), &[], &zones).unwrap();
        }
        assert_eq!(simulation.busiest(5), [(at("13:00:00"), 3)]);
        let hours = simulation.hours();
        assert_eq!((hours[0].at, hours[0].fires), (at("12:00:00"), 1));
        assert_eq!((hours[1].fires, hours[1].peak, hours[1].peak_at), (5, 3, at("13:00:00")));
    }

    #[test]
    fn bounds_are_kept() {
        let now = at("11:00:00");
        assert_eq!(Simulation::new(now, now, now).err(), Some(SimulationError::Empty));
        assert_eq!(Simulation::new(now, now + TimeDelta::days(367), now).err(), Some(SimulationError::TooLong));
    }
}
