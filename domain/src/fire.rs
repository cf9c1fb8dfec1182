//! Fires: what becomes of a schedule's due instants. Overlap and misfire as one pure decision.
//!
//! The Ticker asks [`decide`] about each due schedule and writes the answer in one transaction. Every due instant ends
//! in the answer, as a task or as a skip with its reason; instants that did not fit stay due, and are decided in the
//! next round.

use chrono::{DateTime, NaiveDate, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::calendar::Calendar;
use crate::id::{FireId, ScheduleId, TaskId};
use crate::schedule::{MisfirePolicy, OverlapPolicy, Schedule, ScheduleError};
use crate::task::{Due, FireOfTask, NewTask, TaskStatus};
use crate::time::{Recurrence, ZoneDatabase};
use crate::topic::Topic;

/// The most tasks made for one schedule in one transaction, so that catching up does not delay fresh work.
pub const MAX_MADE: usize = 1_000;
/// The most instants looked at for one schedule in one transaction.
const MAX_LOOKED_AT: usize = 20_000;

/// What made a fire happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FireKind {
    /// Its instant came.
    Schedule,
    /// Somebody triggered it.
    Manual,
    /// Somebody filled in the past.
    Backfill,
}

impl FireKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Schedule, Self::Manual, Self::Backfill];

    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Schedule => "schedule",
            Self::Manual => "manual",
            Self::Backfill => "backfill",
        }
    }

    /// The kind of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }
}

/// Why an instant made no task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SkipReason {
    /// A task of an earlier fire had not ended.
    Overlap,
    /// A later missed instant fired for it.
    Coalesced,
    /// Missed, and the policy is to skip.
    Misfire,
    /// Missed for longer than the window.
    Window,
    /// A calendar excludes its date.
    Calendar,
}

impl SkipReason {
    /// Every reason.
    pub const ALL: [Self; 5] = [Self::Overlap, Self::Coalesced, Self::Misfire, Self::Window, Self::Calendar];

    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Overlap => "overlap",
            Self::Coalesced => "coalesced",
            Self::Misfire => "misfire",
            Self::Window => "window",
            Self::Calendar => "calendar",
        }
    }

    /// The reason of that name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.as_str() == name)
    }
}

/// A fire to be written.
#[derive(Debug, Clone, PartialEq)]
pub struct NewFire {
    /// Its id.
    pub id: FireId,
    /// Its instant; the first of a run of skipped ones.
    pub scheduled_at: DateTime<Utc>,
    /// What becomes of it.
    pub disposition: Disposition,
}

/// What becomes of a due instant.
#[derive(Debug, Clone, PartialEq)]
pub enum Disposition {
    /// It makes a task.
    Fired(Box<NewTask>),
    /// It makes none; a run of instants with one reason is one fire.
    Skipped {
        /// Why.
        reason: SkipReason,
        /// The last instant of the run.
        until: DateTime<Utc>,
        /// How many instants the run has.
        count: u64,
    },
}

/// A fire as the store knows it, with where its task stands.
#[derive(Debug, Clone, PartialEq)]
pub struct Fire {
    /// Its id.
    pub id: FireId,
    /// Its schedule.
    pub schedule_id: ScheduleId,
    /// What made it happen.
    pub kind: FireKind,
    /// Its instant; the first of a run of skipped ones.
    pub scheduled_at: DateTime<Utc>,
    /// When it was decided.
    pub fired_at: DateTime<Utc>,
    /// Why it made no task.
    pub reason: Option<SkipReason>,
    /// The last instant of a run of skipped ones.
    pub until: Option<DateTime<Utc>>,
    /// How many instants it stands for.
    pub count: u64,
    /// The release of the zone data it was computed with.
    pub tz_version: String,
    /// The task it made, unless that was pruned.
    pub task: Option<TaskOfFire>,
}

/// Where the task of a fire stands.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskOfFire {
    /// The task.
    pub id: TaskId,
    /// Where it stands; `None` once it was pruned.
    pub status: Option<TaskStatus>,
    /// The number of its current or last attempt.
    pub attempt: u32,
    /// When that began.
    pub started_at: Option<DateTime<Utc>>,
    /// When the task ended.
    pub completed_at: Option<DateTime<Utc>>,
    /// What went wrong last.
    pub error: Option<String>,
}

/// All that a decision about a due schedule rests on.
#[derive(Debug, Clone)]
pub struct DueSchedule {
    /// The schedule, its next instant due.
    pub schedule: Schedule,
    /// How many tasks of its fires have not ended.
    pub live_tasks: u64,
    /// The calendars it names.
    pub calendars: Vec<Calendar>,
}

/// What is the same for every decision of a node.
#[derive(Debug, Clone)]
pub struct FireRules {
    /// The zone rules in force.
    pub zones: ZoneDatabase,
    /// How late an instant may be found and still just fire.
    pub misfire_threshold: TimeDelta,
}

/// What to write about a due schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The fires, in order.
    pub fires: Vec<NewFire>,
    /// Whether the live tasks of earlier fires are cancelled first.
    pub cancel_previous: bool,
    /// The next instant: maybe due as well, if not all fitted.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// Instants up to here are accounted for.
    pub fired_through: DateTime<Utc>,
    /// The release of the zone data that was used.
    pub tz_version: String,
}

/// Decides about every instant of `due` up to `now`, as far as one transaction goes.
///
/// # Errors
/// When the definition cannot be understood, for instance because zone data lost its zone.
pub fn decide(due: &DueSchedule, now: DateTime<Utc>, rules: &FireRules) -> Result<Tick, ScheduleError> {
    let schedule = &due.schedule;
    let recurrence = schedule.definition.recurrence(&rules.zones, schedule.created_at)?;
    let mut decider = Decider {
        schedule,
        calendars: &due.calendars,
        live_tasks: due.live_tasks,
        zone_date: zone_date(&recurrence, rules, schedule),
        now,
        threshold: rules.misfire_threshold,
        fires_for_the_missed: None,
        made: 0,
        tick: Tick {
            fires: Vec::new(),
            cancel_previous: false,
            next_fire_at: schedule.next_fire_at,
            fired_through: schedule.fired_through.unwrap_or(schedule.created_at),
            tz_version: rules.zones.version().to_owned(),
        },
    };
    decider.run(&recurrence);
    Ok(decider.tick)
}

/// Tells the date of an instant where the schedule lives.
type ZoneDate = Box<dyn Fn(DateTime<Utc>) -> NaiveDate>;

fn zone_date(recurrence: &Recurrence, rules: &FireRules, schedule: &Schedule) -> ZoneDate {
    let zone = match recurrence {
        Recurrence::Cron { zone, .. } => Some(zone.clone()),
        Recurrence::Interval(_) => rules.zones.zone(&schedule.definition.timezone).ok(),
    };
    Box::new(move |at| {
        zone.as_ref()
            .map_or(at.date_naive(), |zone| (at + TimeDelta::seconds(zone.offset_seconds_at(at).into())).date_naive())
    })
}

/// One pass over the due instants of one schedule.
struct Decider<'a> {
    schedule: &'a Schedule,
    calendars: &'a [Calendar],
    live_tasks: u64,
    zone_date: ZoneDate,
    now: DateTime<Utc>,
    threshold: TimeDelta,
    /// Under `fire_once`: the one missed instant that fires.
    fires_for_the_missed: Option<DateTime<Utc>>,
    made: usize,
    tick: Tick,
}

/// What happens to one instant.
enum Verdict {
    Fire { serial: bool },
    Skip(SkipReason),
}

impl Decider<'_> {
    fn run(&mut self, recurrence: &Recurrence) {
        if self.schedule.definition.misfire_policy == MisfirePolicy::FireOnce {
            self.fires_for_the_missed = self.latest_missed(recurrence);
        }
        for _ in 0..MAX_LOOKED_AT {
            let Some(at) = self.tick.next_fire_at.filter(|at| *at <= self.now) else { return };
            if self.is_full() {
                return;
            }
            let following = self.schedule.instant_after(recurrence, at);
            match self.judge(at) {
                Verdict::Fire { serial } => self.fire(at, serial),
                Verdict::Skip(reason) => self.skip(at, reason),
            }
            self.tick.fired_through = at;
            self.tick.next_fire_at = following.filter(|_| !self.is_done());
        }
    }

    /// Enough was made for one transaction. A fire that cancels what went before takes one of its own.
    fn is_full(&self) -> bool {
        let most = match self.schedule.definition.overlap_policy {
            OverlapPolicy::CancelPrevious => 1,
            _ => MAX_MADE,
        };
        self.made >= most
    }

    /// The last fire the definition allows was made.
    fn is_done(&self) -> bool {
        self.schedule.definition.max_fires.is_some_and(|most| self.schedule.fires_made + self.made as u64 >= most)
    }

    fn judge(&self, at: DateTime<Utc>) -> Verdict {
        let definition = &self.schedule.definition;
        if self.is_excluded(at) {
            return Verdict::Skip(SkipReason::Calendar);
        }
        let age = self.now - at;
        let is_missed = age > self.threshold;
        if is_missed {
            if age > self.window() {
                return Verdict::Skip(SkipReason::Window);
            }
            match definition.misfire_policy {
                MisfirePolicy::Skip => return Verdict::Skip(SkipReason::Misfire),
                MisfirePolicy::FireOnce if self.fires_for_the_missed != Some(at) => {
                    return Verdict::Skip(SkipReason::Coalesced);
                }
                MisfirePolicy::FireOnce | MisfirePolicy::FireAll => {}
            }
        }
        let catches_up = is_missed && definition.misfire_policy == MisfirePolicy::FireAll;
        match definition.overlap_policy {
            OverlapPolicy::Skip if catches_up => Verdict::Fire { serial: true },
            OverlapPolicy::Skip if self.live_tasks + self.made as u64 > 0 => Verdict::Skip(SkipReason::Overlap),
            OverlapPolicy::Queue => Verdict::Fire { serial: true },
            OverlapPolicy::Skip | OverlapPolicy::CancelPrevious | OverlapPolicy::Allow => {
                Verdict::Fire { serial: false }
            }
        }
    }

    fn is_excluded(&self, at: DateTime<Utc>) -> bool {
        let date = (self.zone_date)(at);
        self.calendars.iter().any(|calendar| calendar.excludes(date))
    }

    fn window(&self) -> TimeDelta {
        TimeDelta::seconds(i64::from(self.schedule.definition.misfire_window_seconds))
    }

    /// The latest missed instant inside the window that no calendar excludes.
    ///
    /// Looks back in growing steps, so that a long outage of a fast schedule costs no more than its last stretch.
    fn latest_missed(&self, recurrence: &Recurrence) -> Option<DateTime<Utc>> {
        let first = self.schedule.next_fire_at?.max(self.now - self.window());
        let mut reach = TimeDelta::minutes(1);
        loop {
            let from = first.max(self.now - self.threshold - reach);
            // Searching is exclusive of its start; instants have whole milliseconds at the least.
            let mut at = recurrence.next_after(from - TimeDelta::microseconds(1));
            let mut latest = None;
            while let Some(missed) = at.filter(|at| self.now - *at > self.threshold) {
                if !self.is_excluded(missed) {
                    latest = Some(missed);
                }
                at = self.schedule.instant_after(recurrence, missed);
            }
            if latest.is_some() || from == first {
                return latest;
            }
            reach = reach * 4;
        }
    }

    fn fire(&mut self, at: DateTime<Utc>, serial: bool) {
        let schedule = self.schedule;
        self.tick.cancel_previous |= schedule.definition.overlap_policy == OverlapPolicy::CancelPrevious;
        self.made += 1;
        self.tick.fires.push(NewFire {
            id: FireId::generate(),
            scheduled_at: at,
            disposition: Disposition::Fired(Box::new(schedule.task_of_fire(at, serial))),
        });
    }

    fn skip(&mut self, at: DateTime<Utc>, reason: SkipReason) {
        if let Some(NewFire { disposition: Disposition::Skipped { reason: last, until, count }, .. }) =
            self.tick.fires.last_mut()
            && *last == reason
        {
            *until = at;
            *count += 1;
            return;
        }
        self.tick.fires.push(NewFire {
            id: FireId::generate(),
            scheduled_at: at,
            disposition: Disposition::Skipped { reason, until: at, count: 1 },
        });
    }
}

impl Schedule {
    /// The task that a fire at `at` makes; a serial one waits for the schedule's earlier tasks.
    pub fn task_of_fire(&self, at: DateTime<Utc>, serial: bool) -> NewTask {
        let definition = &self.definition;
        NewTask {
            due: Due::At(at + definition.jitter(self.id)),
            timezone: definition.timezone.clone(),
            payload: definition.payload.clone(),
            metadata: definition.metadata.clone(),
            serial_key: serial.then(|| format!("schedule:{}", self.id)),
            priority: definition.priority,
            timeout_seconds: definition.timeout_seconds,
            retry: definition.retry(),
            fire: Some(FireOfTask { schedule_id: self.id, scheduled_at: at }),
            ..NewTask::new(Topic::from_stored(definition.topic.as_str()))
        }
    }
}
