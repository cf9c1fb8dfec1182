//! What all schedules would do in a stretch of time. Nothing is written.

use chrono::{DateTime, Utc};
use punctual_domain::calendar::Calendar;
use punctual_domain::id::ScheduleId;
use punctual_domain::schedule::Schedule;
use punctual_domain::simulation::{Simulated, Simulation, SimulationError, fires_in_minute};
use punctual_domain::store::{Page, ScheduleFilter};
use serde::{Deserialize, Serialize};

use super::{InspectError, Inspector, Moment};

/// How many schedules are read at once.
const PAGE: u32 = 200;
/// How many of the busiest minutes are told, and how many schedules are named in each.
const BUSIEST: usize = 5;
const NAMED: usize = 10;
/// How many schedules are listed; the rest are added up.
const LISTED: usize = 10_000;

/// What would happen.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    pub(crate) tz_version: String,
    /// All fires.
    pub(crate) fires: u64,
    pub(crate) schedules: Vec<OfSchedule>,
    /// Fires hour by hour, in UTC.
    pub(crate) hours: Vec<Hour>,
    /// The minutes with the most fires.
    pub(crate) busiest: Vec<Minute>,
}

/// What one schedule would do.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfSchedule {
    pub(crate) id: ScheduleId,
    pub(crate) name: String,
    pub(crate) topic: String,
    pub(crate) timezone: String,
    pub(crate) fires: u64,
    /// How many a calendar would exclude.
    pub(crate) excluded: u64,
    pub(crate) first: Option<Moment>,
    pub(crate) last: Option<Moment>,
    pub(crate) paused: bool,
    /// Why it does nothing, where its definition cannot be understood.
    pub(crate) error: Option<String>,
}

/// One hour.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hour {
    pub(crate) at: Moment,
    pub(crate) fires: u64,
    /// Its busiest minute, and the fires in it.
    pub(crate) peak_at: Moment,
    pub(crate) peak: u64,
}

/// One busy minute.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Minute {
    pub(crate) at: Moment,
    pub(crate) fires: u64,
    /// Some of the schedules that fire in it.
    pub(crate) schedules: Vec<String>,
}

impl Inspector {
    /// Adds up what fires from `from` on and before `to`.
    pub(crate) async fn simulate(&self, from: DateTime<Utc>, to: DateTime<Utc>) -> Result<Report, InspectError> {
        let now = self.store.now().await?;
        let mut simulation = Simulation::new(from, to, now).map_err(refused)?;
        let calendars = self.store.calendars().await?;
        let mut schedules = Vec::new();
        let mut after = None;
        loop {
            let page = self.page(after).await?;
            let (is_last, last) = (page.len() < PAGE as usize, page.last().map(|schedule| schedule.id));
            let (back, added) = self.add(simulation, page, calendars.clone()).await?;
            simulation = back;
            schedules.extend(added);
            self.tell(&format!("{} schedules simulated", schedules.len()));
            after = last;
            if is_last {
                break;
            }
        }
        let busiest = self.busiest(&simulation).await?;
        schedules.sort_by(|a, b| b.fires.cmp(&a.fires).then_with(|| a.name.cmp(&b.name)));
        schedules.truncate(LISTED);
        let hours = simulation.hours().into_iter().map(|hour| Hour {
            at: Moment(hour.at),
            fires: hour.fires,
            peak_at: Moment(hour.peak_at),
            peak: hour.peak,
        });
        Ok(Report {
            from: Moment(from),
            to: Moment(to),
            tz_version: self.zones.version().to_owned(),
            fires: simulation.fires(),
            schedules,
            hours: hours.collect(),
            busiest,
        })
    }

    async fn page(&self, after: Option<ScheduleId>) -> Result<Vec<Schedule>, InspectError> {
        Ok(self.store.schedules(&ScheduleFilter::default(), Page { after, limit: PAGE }).await?)
    }

    /// Adds schedules, on a thread of its own: one that fires every second for a year is a lot to look at.
    async fn add(
        &self,
        mut simulation: Simulation,
        schedules: Vec<Schedule>,
        calendars: Vec<Calendar>,
    ) -> Result<(Simulation, Vec<OfSchedule>), InspectError> {
        let zones = self.zones.clone();
        let adding = tokio::task::spawn_blocking(move || {
            let mut added = Vec::new();
            for schedule in schedules {
                match simulation.add(&schedule, &calendars, &zones) {
                    Ok(simulated) => added.push(OfSchedule::new(&schedule, simulated, None)),
                    Err(SimulationError::Schedule(error)) => {
                        added.push(OfSchedule::new(&schedule, Simulated::default(), Some(error.to_string())));
                    }
                    Err(error) => return Err(refused(error)),
                }
            }
            Ok((simulation, added))
        });
        adding.await.map_err(|error| InspectError::refused("from", error))?
    }

    /// The busiest minutes, and who fires in them.
    async fn busiest(&self, simulation: &Simulation) -> Result<Vec<Minute>, InspectError> {
        let minutes = simulation.busiest(BUSIEST);
        let minute = |(at, fires)| Minute { at: Moment(at), fires, schedules: Vec::new() };
        let mut busiest: Vec<Minute> = minutes.into_iter().map(minute).collect();
        let mut after = None;
        while busiest.iter().any(|minute| minute.schedules.len() < NAMED) {
            let page = self.page(after).await?;
            for schedule in &page {
                let Ok(recurrence) = schedule.definition.recurrence(&self.zones, schedule.created_at) else { continue };
                for minute in &mut busiest {
                    if minute.schedules.len() < NAMED && fires_in_minute(schedule, &recurrence, minute.at.0) {
                        minute.schedules.push(schedule.definition.name.clone());
                    }
                }
            }
            after = page.last().map(|schedule| schedule.id);
            if page.len() < PAGE as usize {
                break;
            }
        }
        for minute in &mut busiest {
            minute.schedules.sort();
        }
        Ok(busiest)
    }
}

impl OfSchedule {
    fn new(schedule: &Schedule, simulated: Simulated, error: Option<String>) -> Self {
        let definition = &schedule.definition;
        Self {
            id: schedule.id,
            name: definition.name.clone(),
            topic: definition.topic.clone(),
            timezone: definition.timezone.clone(),
            fires: simulated.fires,
            excluded: simulated.excluded,
            first: simulated.first.map(Moment),
            last: simulated.last.map(Moment),
            paused: !schedule.enabled,
            error,
        }
    }
}

fn refused(error: SimulationError) -> InspectError {
    let field = if error == SimulationError::Empty { "from" } else { "to" };
    InspectError::refused(field, error)
}
