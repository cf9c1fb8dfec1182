//! Which future fires move with newer zone data.

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::id::ScheduleId;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Page, ScheduleFilter};
use punctual_domain::time::{Moved, ZoneDatabase, ZoneDiff};
use serde::{Deserialize, Serialize};

use super::{InspectError, Inspector, Moment};

/// How far ahead is looked.
const AHEAD: TimeDelta = TimeDelta::days(366);
/// How many schedules are read at once.
const PAGE: u32 = 200;

/// What moves.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    /// The zone data as it is.
    pub(crate) from: Release,
    /// The zone data as it would be.
    pub(crate) to: Release,
    /// How far ahead was looked.
    pub(crate) until: Moment,
    /// How many schedules were looked at.
    pub(crate) looked_at: u64,
    /// Those whose fires move.
    pub(crate) schedules: Vec<OfSchedule>,
}

/// One release of zone data.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Release {
    pub(crate) version: String,
    /// Where it comes from.
    pub(crate) source: String,
}

/// What moves of one schedule.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfSchedule {
    pub(crate) id: ScheduleId,
    pub(crate) name: String,
    pub(crate) timezone: String,
    /// How many fires move, appear or vanish.
    pub(crate) count: u64,
    /// Whether there are more than were counted.
    pub(crate) more: bool,
    pub(crate) moves: Vec<Move>,
    /// Why it cannot be compared.
    pub(crate) error: Option<String>,
}

/// One fire that moves; `null` where there is none.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Move {
    pub(crate) from: Option<Moment>,
    pub(crate) to: Option<Moment>,
}

impl Release {
    pub(crate) fn of(zones: &ZoneDatabase) -> Self {
        Self { version: zones.version().to_owned(), source: zones.source().to_string() }
    }
}

impl Inspector {
    /// What moves from the zone data in use to the newest at hand now: the system's may be newer than when we started.
    pub(crate) async fn tz_diff_to_newest(&self) -> Result<Report, InspectError> {
        let newest = ZoneDatabase::current(self.tzdir.as_deref())
            .map_err(|error| InspectError::refused("PUNCTUAL_TZDIR", error))?;
        self.tz_diff(&self.zones, &newest).await
    }

    /// What moves from the newest release that any node ever noted. Where that is not at hand any more, the next instant of each
    /// schedule is all that is known of it.
    pub(crate) async fn tz_diff_from_stored(&self, new: &ZoneDatabase) -> Result<Report, InspectError> {
        let noted = self.store.noted_tz_version().await?.unwrap_or_else(|| new.version().to_owned());
        let at_hand = ZoneDatabase::at_hand(self.tzdir.as_deref()).into_iter().find(|zones| zones.version() == noted);
        if let Some(old) = at_hand {
            return self.tz_diff(&old, new).await;
        }
        let now = self.store.now().await?;
        let mut comparing = Comparing::new(new, new, now);
        comparing.report.from =
            Release { version: noted, source: "not at hand: only the next fire of each schedule is known".into() };
        let mut after = None;
        loop {
            let page = self.store.schedules(&ScheduleFilter::default(), Page { after, limit: PAGE }).await?;
            for schedule in &page {
                comparing.add_next(schedule, new, now);
            }
            after = page.last().map(|schedule| schedule.id);
            if page.len() < PAGE as usize {
                return Ok(comparing.finish());
            }
        }
    }

    /// What moves from one release to another.
    pub(crate) async fn tz_diff(&self, old: &ZoneDatabase, new: &ZoneDatabase) -> Result<Report, InspectError> {
        let now = self.store.now().await?;
        let mut comparing = Comparing::new(old, new, now);
        let mut after = None;
        loop {
            let page = self.store.schedules(&ScheduleFilter::default(), Page { after, limit: PAGE }).await?;
            for schedule in &page {
                comparing.add(schedule);
                tokio::task::yield_now().await;
            }
            after = page.last().map(|schedule| schedule.id);
            if page.len() < PAGE as usize {
                return Ok(comparing.finish());
            }
        }
    }
}

/// A comparison under way.
pub(crate) struct Comparing<'a> {
    diff: ZoneDiff<'a>,
    report: Report,
}

impl<'a> Comparing<'a> {
    pub(crate) fn new(old: &'a ZoneDatabase, new: &'a ZoneDatabase, now: DateTime<Utc>) -> Self {
        let until = now + AHEAD;
        Self {
            diff: ZoneDiff::new(old, new, now, until),
            report: Report {
                from: Release::of(old),
                to: Release::of(new),
                until: Moment(until),
                looked_at: 0,
                schedules: Vec::new(),
            },
        }
    }

    /// Compares one schedule; a paused one too, as somebody may resume it.
    pub(crate) fn add(&mut self, schedule: &Schedule) {
        let (moved, error) = match self.diff.moved(schedule) {
            Ok(moved) => (moved, None),
            Err(error) => (Moved::default(), Some(error.to_string())),
        };
        self.note(schedule, moved, error);
    }

    /// Compares the stored next instant of a schedule, which is not due yet, with what it would be.
    fn add_next(&mut self, schedule: &Schedule, new: &ZoneDatabase, now: DateTime<Utc>) {
        let stored = schedule.next_fire_at.filter(|at| *at > now);
        let mut planned = schedule.clone();
        let (moved, error) = match planned.plan(now, new) {
            Ok(()) if stored.is_some() && planned.next_fire_at != stored => {
                let first = vec![(stored, planned.next_fire_at)];
                (Moved { count: 1, first, is_cut: true }, None)
            }
            Ok(()) => (Moved::default(), None),
            Err(error) => (Moved::default(), Some(error.to_string())),
        };
        self.note(schedule, moved, error);
    }

    fn note(&mut self, schedule: &Schedule, moved: Moved, error: Option<String>) {
        self.report.looked_at += 1;
        if moved.count == 0 && !moved.is_cut && error.is_none() {
            return;
        }
        self.report.schedules.push(OfSchedule {
            id: schedule.id,
            name: schedule.definition.name.clone(),
            timezone: schedule.definition.timezone.clone(),
            count: moved.count,
            more: moved.is_cut,
            moves: moved
                .first
                .into_iter()
                .map(|(from, to)| Move { from: from.map(Moment), to: to.map(Moment) })
                .collect(),
            error,
        });
    }

    pub(crate) fn finish(mut self) -> Report {
        self.report.schedules.sort_by(|a, b| a.name.cmp(&b.name));
        self.report
    }
}
