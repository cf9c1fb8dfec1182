//! Fires: what becomes of a schedule's due instants. Overlap and misfire as one pure decision.
//!
//! The Ticker asks [`decide`] about each due schedule and writes the answer in one transaction. Every due instant ends
//! in the answer, as a task or as a skip with its reason; instants that did not fit stay due, and are decided in the
//! next round.

use chrono::{DateTime, NaiveDate, SubsecRound, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::calendar::Calendar;
use crate::id::{FireId, ScheduleId, TaskId};
use crate::schedule::{MisfirePolicy, OverlapPolicy, Schedule, ScheduleError};
use crate::task::{Due, FireOfTask, NewTask, TaskStatus};
use crate::time::{Recurrence, ZoneDatabase};
use crate::topic::{Topic, TopicDefinition};

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
    /// Whether a queue outside has accepted it, and has it now.
    pub is_handed_over: bool,
    /// The number of its current or last attempt.
    pub attempt: u32,
    /// When that began.
    pub started_at: Option<DateTime<Utc>>,
    /// When the task ended.
    pub completed_at: Option<DateTime<Utc>>,
    /// What went wrong last.
    pub error: Option<String>,
}

/// Where a fire stands, as the API tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FireStatus {
    /// Where its task stands.
    Task(TaskStatus),
    /// It made no task.
    Skipped,
    /// A queue outside has accepted its task.
    Dispatched,
}

impl FireStatus {
    /// The one word for it, everywhere.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Task(status) => status.as_str(),
            Self::Skipped => "skipped",
            Self::Dispatched => "dispatched",
        }
    }
}

impl Fire {
    /// Where it stands; `None` once its task was pruned.
    pub fn status(&self) -> Option<FireStatus> {
        match (self.reason, &self.task) {
            (Some(_), _) => Some(FireStatus::Skipped),
            (None, Some(task)) if task.is_handed_over => Some(FireStatus::Dispatched),
            (None, task) => task.as_ref().and_then(|task| task.status).map(FireStatus::Task),
        }
    }
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
    /// The definition that its topic is led to.
    pub topic: Option<TopicDefinition>,
}

/// What is the same for every decision of a node.
#[derive(Debug, Clone)]
pub struct FireRules {
    /// The zone rules in force.
    pub zones: ZoneDatabase,
    /// How late an instant may be found and still just fire.
    pub misfire_threshold: TimeDelta,
}

/// How much more one transaction may take, so that others need not wait long for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Tasks that are made.
    pub fires: usize,
    /// Tasks that are made of one schedule.
    pub fires_of_one: usize,
    /// Instants that are looked at.
    pub instants: usize,
}

impl Room {
    /// The room for schedules that are on time.
    pub const FRESH: Self = Self { fires: 1_000, fires_of_one: 1_000, instants: 20_000 };

    /// Whether the next schedule has to wait for the next transaction.
    pub fn is_used_up(&self) -> bool {
        self.fires == 0 || self.instants == 0
    }
}

/// What to write about a due schedule.
#[derive(Debug, Clone, PartialEq)]
pub struct Tick {
    /// The fires, in order.
    pub fires: Vec<NewFire>,
    /// Whether its pause has ended, and it is enabled again.
    pub resumes: bool,
    /// Why it is paused from now on: it cannot be understood any more.
    pub stops: Option<String>,
    /// Whether the live tasks of earlier fires are cancelled first.
    pub cancel_previous: bool,
    /// The next instant: maybe due as well, if not all fitted.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// Instants up to here are accounted for.
    pub fired_through: DateTime<Utc>,
    /// The release of the zone data that was used.
    pub tz_version: String,
}

/// Decides about every instant of `due` up to `now`, as far as one transaction goes. One whose pause has ended resumes
/// as of that instant, however late that is seen.
///
/// # Errors
/// When the definition cannot be understood, for instance because zone data lost its zone.
pub fn decide(due: &DueSchedule, now: DateTime<Utc>, rules: &FireRules) -> Result<Tick, ScheduleError> {
    decide_within(due, now, rules, &mut { Room::FRESH })
}

/// The same, as far as there is room.
///
/// # Errors
/// As [`decide`].
pub fn decide_within(
    due: &DueSchedule,
    now: DateTime<Utc>,
    rules: &FireRules,
    room: &mut Room,
) -> Result<Tick, ScheduleError> {
    let resumed = match due.schedule.paused_until {
        // The instant of the end itself may fire.
        Some(until) if !due.schedule.enabled => {
            Some(due.schedule.clone().resumed(until - TimeDelta::microseconds(1), &rules.zones)?)
        }
        _ => None,
    };
    let schedule = resumed.as_ref().unwrap_or(&due.schedule);
    let recurrence = schedule.definition.recurrence(&rules.zones, schedule.created_at)?;
    let mut decider = Decider {
        schedule,
        calendars: &due.calendars,
        topic: due.topic.as_ref(),
        live_tasks: due.live_tasks,
        zone_date: zone_date(&recurrence, rules, schedule),
        now,
        threshold: rules.misfire_threshold,
        fires_for_the_missed: None,
        room,
        made: 0,
        tick: Tick {
            fires: Vec::new(),
            resumes: resumed.is_some(),
            stops: None,
            cancel_previous: false,
            next_fire_at: schedule.next_fire_at,
            fired_through: schedule.fired_through.unwrap_or(schedule.created_at),
            tz_version: rules.zones.version().to_owned(),
        },
    };
    decider.run(&recurrence);
    Ok(decider.tick)
}

/// The most by which an instant may be late and still fire although its schedule is about to be deleted.
const LAST_FIRES: TimeDelta = TimeDelta::seconds(30);

/// The same for a schedule that is about to be deleted: what `fire_all` would make up for is skipped, since its tasks would
/// be cancelled together with the schedule. So a backlog of any length is a few rows, and does not hold the deletion up.
///
/// # Errors
/// As [`decide`].
pub fn decide_before_deletion(due: &DueSchedule, now: DateTime<Utc>, rules: &FireRules) -> Result<Tick, ScheduleError> {
    let mut due = due.clone();
    let policy = &mut due.schedule.definition.misfire_policy;
    if *policy == MisfirePolicy::FireAll {
        *policy = MisfirePolicy::Skip;
    }
    let rules = FireRules { misfire_threshold: rules.misfire_threshold.min(LAST_FIRES), ..rules.clone() };
    decide(&due, now, &rules)
}

impl Tick {
    /// What to write about a schedule that cannot be decided: it is paused with a note, where people see it.
    pub fn stop(schedule: &Schedule, error: &ScheduleError, rules: &FireRules) -> Self {
        Self {
            fires: Vec::new(),
            resumes: false,
            stops: Some(format!("paused because it cannot be understood any more: {error}")),
            cancel_previous: false,
            next_fire_at: None,
            fired_through: schedule.fired_through.unwrap_or(schedule.created_at),
            tz_version: rules.zones.version().to_owned(),
        }
    }
}

/// Tells the date of an instant where the schedule lives.
type ZoneDate = Box<dyn Fn(DateTime<Utc>) -> NaiveDate>;

fn zone_date(recurrence: &Recurrence, rules: &FireRules, schedule: &Schedule) -> ZoneDate {
    let zone = match recurrence {
        Recurrence::Cron { zone, .. } => Some(zone.clone()),
        Recurrence::Interval(_) => rules.zones.zone(&schedule.definition.timezone).ok(),
    };
    Box::new(move |at| zone.as_ref().map_or(at.date_naive(), |zone| zone.local(at).date()))
}

/// One pass over the due instants of one schedule.
struct Decider<'a> {
    schedule: &'a Schedule,
    calendars: &'a [Calendar],
    topic: Option<&'a TopicDefinition>,
    live_tasks: u64,
    zone_date: ZoneDate,
    now: DateTime<Utc>,
    threshold: TimeDelta,
    /// Under `fire_once`: the one missed instant that fires.
    fires_for_the_missed: Option<DateTime<Utc>>,
    room: &'a mut Room,
    made: usize,
    tick: Tick,
}

/// How the task of a fire is made.
struct Making {
    /// It waits for the schedule's earlier tasks.
    is_serial: bool,
    /// It is not due before this instant.
    not_before: Option<DateTime<Utc>>,
}

/// What happens to one instant.
enum Verdict {
    Fire(Making),
    Skip(SkipReason),
}

impl Decider<'_> {
    fn run(&mut self, recurrence: &Recurrence) {
        if self.schedule.definition.misfire_policy == MisfirePolicy::FireOnce {
            self.fires_for_the_missed = self.latest_missed(recurrence);
        }
        while let Some(at) = self.tick.next_fire_at.filter(|at| *at <= self.now) {
            if self.is_full() {
                return;
            }
            self.room.instants -= 1;
            let following = self.schedule.instant_after(recurrence, at);
            match self.judge(at) {
                Verdict::Fire(making) => self.fire(at, making),
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
            _ => self.room.fires_of_one,
        };
        self.room.is_used_up() || self.made >= most
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
        let is_serial = match definition.overlap_policy {
            OverlapPolicy::Skip if catches_up => true,
            OverlapPolicy::Skip if self.live_tasks + self.made as u64 > 0 => return Verdict::Skip(SkipReason::Overlap),
            OverlapPolicy::Queue => true,
            OverlapPolicy::Skip | OverlapPolicy::CancelPrevious | OverlapPolicy::Allow => false,
        };
        // What was missed stands in line with what is due by now, not in front of it; and what runs in order is due in
        // the order it was made, whichever node's turn it was.
        let not_before = self.schedule.last_fired_at.map_or(self.now, |last| last.max(self.now));
        Verdict::Fire(Making { is_serial, not_before: (is_missed || is_serial).then_some(not_before) })
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
            let mut at = self.schedule.instant_after(recurrence, from - TimeDelta::microseconds(1));
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

    fn fire(&mut self, at: DateTime<Utc>, making: Making) {
        let schedule = self.schedule;
        self.tick.cancel_previous |= schedule.definition.overlap_policy == OverlapPolicy::CancelPrevious;
        self.made += 1;
        self.room.fires -= 1;
        let mut task = schedule.task_of_fire(at, making.is_serial, self.topic);
        if let (Due::At(run_at), Some(not_before)) = (&mut task.due, making.not_before) {
            *run_at = not_before.max(*run_at);
        }
        let disposition = Disposition::Fired(Box::new(task));
        self.tick.fires.push(NewFire { id: FireId::generate(), scheduled_at: at, disposition });
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
    /// The task that a fire at `at` makes; a serial one waits for the schedule's earlier tasks. `topic` is the definition
    /// that its topic is led to.
    pub fn task_of_fire(&self, at: DateTime<Utc>, serial: bool, topic: Option<&TopicDefinition>) -> NewTask {
        let definition = &self.definition;
        NewTask {
            due: Due::At(at + definition.jitter(self.id)),
            timezone: definition.timezone.clone(),
            payload: definition.payload.clone(),
            metadata: definition.metadata.clone(),
            serial_key: serial.then(|| format!("schedule:{}", self.id)),
            priority: definition.priority,
            timeout_seconds: definition.timeout(topic),
            retry: definition.retry(topic),
            fire: Some(FireOfTask { schedule_id: self.id, scheduled_at: at }),
            ..NewTask::new(Topic::from_stored(definition.topic.as_str()))
        }
    }

    /// A fire that somebody triggers: its task is due at once, beside whatever else has not ended.
    pub fn manual_fire(&self, at: DateTime<Utc>, topic: Option<&TopicDefinition>) -> NewFire {
        self.fire_now(at, false, topic)
    }

    /// A fire of an instant that somebody fills in: its task is due at once, behind fresh work, and in the order of the
    /// instants unless fires may overlap.
    pub fn backfilled_fire(&self, at: DateTime<Utc>, topic: Option<&TopicDefinition>) -> NewFire {
        self.fire_now(at, self.definition.overlap_policy != OverlapPolicy::Allow, topic)
    }

    fn fire_now(&self, at: DateTime<Utc>, serial: bool, topic: Option<&TopicDefinition>) -> NewFire {
        let task = NewTask { due: Due::Now, ..self.task_of_fire(at, serial, topic) };
        NewFire { id: FireId::generate(), scheduled_at: at, disposition: Disposition::Fired(Box::new(task)) }
    }

    /// The instant of a fire that is triggered at `now`, given the instants of fires that are there already.
    ///
    /// It has whole milliseconds of its own, by which queues elsewhere tell fires apart: none that another fire has, and
    /// none that the schedule comes to by itself.
    pub fn instant_of_trigger(&self, now: DateTime<Utc>, is_taken: impl Fn(DateTime<Utc>) -> bool) -> DateTime<Utc> {
        let is_its_own = |at: DateTime<Utc>| {
            at.timestamp_subsec_millis() == 0 || self.next_fire_at.is_some_and(|next| next.trunc_subsecs(3) == at)
        };
        let mut at = now.trunc_subsecs(3);
        while is_its_own(at) || is_taken(at) {
            at += TimeDelta::milliseconds(1);
        }
        at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Definition, Rhythm};

    const THRESHOLD: TimeDelta = TimeDelta::seconds(30);

    fn at(text: &str) -> DateTime<Utc> {
        format!("2026-11-16T{text}Z").parse().unwrap()
    }

    fn rules() -> FireRules {
        FireRules { zones: ZoneDatabase::bundled(), misfire_threshold: THRESHOLD }
    }

    /// A schedule every minute, made at 11:59:30, so its first instant is 12:00:00.
    fn every_minute(change: impl FnOnce(&mut Definition)) -> DueSchedule {
        let rhythm = Rhythm::Cron("* * * * *".into());
        let mut definition = Definition::new("every-minute", rhythm, "UTC", &"mail".parse().unwrap());
        change(&mut definition);
        let schedule = Schedule::new(definition, at("11:59:30"), &ZoneDatabase::bundled()).unwrap();
        DueSchedule { schedule, live_tasks: 0, calendars: Vec::new(), topic: None }
    }

    /// The fires of a tick as text: `12:00 fired`, `12:00-12:03 x4 coalesced`.
    fn shown(tick: &Tick) -> Vec<String> {
        let time = |at: DateTime<Utc>| at.format("%H:%M").to_string();
        tick.fires
            .iter()
            .map(|fire| match &fire.disposition {
                Disposition::Fired(task) if task.serial_key.is_some() => format!("{} queued", time(fire.scheduled_at)),
                Disposition::Fired(_) => format!("{} fired", time(fire.scheduled_at)),
                Disposition::Skipped { reason, until, count: 1 } if *until == fire.scheduled_at => {
                    format!("{} {}", time(fire.scheduled_at), reason.as_str())
                }
                Disposition::Skipped { reason, until, count } => {
                    format!("{}-{} x{count} {}", time(fire.scheduled_at), time(*until), reason.as_str())
                }
            })
            .collect()
    }

    #[test]
    fn overlap_and_misfire_follow_the_table() {
        use MisfirePolicy::{FireAll, FireOnce, Skip as SkipMissed};
        use OverlapPolicy::{Allow, CancelPrevious, Queue, Skip};
        let cases: &[(OverlapPolicy, MisfirePolicy, u64, &str, &[&str])] = &[
            // overlap, misfire, live tasks, now, what is written
            (Skip, FireOnce, 0, "11:59:59", &[]),
            (Skip, FireOnce, 0, "12:00:00", &["12:00 fired"]),
            (Skip, FireOnce, 0, "12:00:30", &["12:00 fired"]),
            (Skip, FireOnce, 1, "12:00:00", &["12:00 overlap"]),
            (Queue, FireOnce, 1, "12:00:00", &["12:00 queued"]),
            (Allow, FireOnce, 1, "12:00:00", &["12:00 fired"]),
            (CancelPrevious, FireOnce, 1, "12:00:00", &["12:00 fired"]),
            // Four missed, 12:04 fresh.
            (Allow, FireOnce, 0, "12:04:10", &["12:00-12:02 x3 coalesced", "12:03 fired", "12:04 fired"]),
            (Skip, FireOnce, 0, "12:04:10", &["12:00-12:02 x3 coalesced", "12:03 fired", "12:04 overlap"]),
            (Skip, FireOnce, 1, "12:04:10", &["12:00-12:02 x3 coalesced", "12:03-12:04 x2 overlap"]),
            (Skip, SkipMissed, 0, "12:04:10", &["12:00-12:03 x4 misfire", "12:04 fired"]),
            (Allow, SkipMissed, 0, "12:04:31", &["12:00-12:04 x5 misfire"]),
            (Skip, FireAll, 0, "12:02:40", &["12:00 queued", "12:01 queued", "12:02 queued"]),
            (Skip, FireAll, 0, "12:02:10", &["12:00 queued", "12:01 queued", "12:02 overlap"]),
            (Skip, FireAll, 1, "12:01:40", &["12:00 queued", "12:01 queued"]),
            (Allow, FireAll, 0, "12:01:40", &["12:00 fired", "12:01 fired"]),
            (Queue, FireAll, 0, "12:01:40", &["12:00 queued", "12:01 queued"]),
        ];
        for (overlap, misfire, live_tasks, now, expected) in cases {
            let mut due = every_minute(|definition| {
                definition.overlap_policy = *overlap;
                definition.misfire_policy = *misfire;
            });
            due.live_tasks = *live_tasks;
            let tick = decide(&due, at(now), &rules()).unwrap();
            assert_eq!(shown(&tick), *expected, "{overlap:?} {misfire:?} {live_tasks} {now}");
        }
    }

    #[test]
    fn the_next_instant_follows_the_last_one_decided_not_the_present() {
        let tick = decide(&every_minute(|_| {}), at("12:04:10"), &rules()).unwrap();
        assert_eq!((tick.fired_through, tick.next_fire_at), (at("12:04:00"), Some(at("12:05:00"))));
    }

    #[test]
    fn instants_older_than_the_window_are_skipped_with_that_reason() {
        let due = every_minute(|definition| {
            definition.misfire_window_seconds = 120;
            definition.misfire_policy = MisfirePolicy::FireAll;
            definition.overlap_policy = OverlapPolicy::Allow;
        });
        let tick = decide(&due, at("12:04:31"), &rules()).unwrap();
        assert_eq!(shown(&tick), ["12:00-12:02 x3 window", "12:03 fired", "12:04 fired"]);
    }

    #[test]
    fn a_fire_that_cancels_the_previous_one_takes_a_transaction_of_its_own() {
        let mut due = every_minute(|definition| {
            definition.overlap_policy = OverlapPolicy::CancelPrevious;
            definition.misfire_policy = MisfirePolicy::FireAll;
        });
        for expected in ["12:00 fired", "12:01 fired", "12:02 fired"] {
            let tick = decide(&due, at("12:02:00"), &rules()).unwrap();
            assert!(tick.cancel_previous);
            assert_eq!(shown(&tick), [expected]);
            due.schedule.next_fire_at = tick.next_fire_at;
            due.schedule.fired_through = Some(tick.fired_through);
        }
        assert_eq!(due.schedule.next_fire_at, Some(at("12:03:00")));
    }

    #[test]
    fn a_calendar_excludes_by_the_date_where_the_schedule_lives() {
        let closed = Calendar { name: "closed".into(), dates: [at("12:00:00").date_naive()].into(), weekdays: vec![] };
        // Midnight to one in Auckland on the 17th is still the 16th in UTC.
        let mut due = every_minute(|definition| {
            definition.rhythm = Rhythm::Cron("0 * * * *".into());
            definition.timezone = "Pacific/Auckland".into();
            definition.overlap_policy = OverlapPolicy::Allow;
            definition.misfire_policy = MisfirePolicy::FireAll;
        });
        due.schedule.next_fire_at = Some(at("09:00:00"));
        due.calendars = vec![closed];
        let tick = decide(&due, at("12:00:10"), &rules()).unwrap();
        assert_eq!(shown(&tick), ["09:00-10:00 x2 calendar", "11:00 fired", "12:00 fired"]);
    }

    #[test]
    fn the_latest_missed_instant_that_no_calendar_excludes_fires_for_the_others() {
        let weekend = Calendar {
            name: "weekend".into(),
            dates: Default::default(),
            weekdays: vec![chrono::Weekday::Sat, chrono::Weekday::Sun],
        };
        let mut due = every_minute(|definition| {
            definition.misfire_window_seconds = 7 * 86_400;
            definition.rhythm = Rhythm::Cron("0 12 * * *".into());
        });
        // Thursday, Friday, Saturday and Sunday were missed; it is Monday morning.
        due.schedule.next_fire_at = Some("2026-11-12T12:00:00Z".parse().unwrap());
        due.calendars = vec![weekend];
        let tick = decide(&due, at("08:00:00"), &rules()).unwrap();
        let days: Vec<_> = tick.fires.iter().map(|fire| fire.scheduled_at.format("%a").to_string()).collect();
        assert_eq!(days, ["Thu", "Fri", "Sat"]);
        assert_eq!(shown(&tick), ["12:00 coalesced", "12:00 fired", "12:00-12:00 x2 calendar"]);
    }

    #[test]
    fn a_long_outage_is_worked_off_in_parts_and_every_instant_is_accounted_for() {
        let mut due = every_minute(|definition| {
            definition.misfire_policy = MisfirePolicy::FireAll;
            definition.overlap_policy = OverlapPolicy::Allow;
        });
        let (mut made, mut rounds) = (0, 0);
        while due.schedule.next_fire_at.is_some_and(|next| next <= at("23:59:00")) {
            let tick = decide(&due, at("23:59:00"), &rules()).unwrap();
            assert!(tick.fires.len() <= Room::FRESH.fires);
            made += tick.fires.len();
            rounds += 1;
            due.schedule.next_fire_at = tick.next_fire_at;
            due.schedule.fired_through = Some(tick.fired_through);
        }
        assert_eq!((made, rounds), (720, 1));

        let mut due = every_minute(|definition| definition.rhythm = Rhythm::Every(1000));
        let (mut instants, mut fired) = (0, 0);
        while due.schedule.next_fire_at.is_some_and(|next| next <= at("23:59:30")) {
            let tick = decide(&due, at("23:59:30"), &rules()).unwrap();
            for fire in &tick.fires {
                match &fire.disposition {
                    Disposition::Fired(_) => (instants, fired) = (instants + 1, fired + 1),
                    Disposition::Skipped { count, .. } => instants += count,
                }
            }
            due.schedule.next_fire_at = tick.next_fire_at;
            due.schedule.fired_through = Some(tick.fired_through);
            due.live_tasks = fired;
        }
        assert_eq!((instants, fired), (12 * 3600, 1));
    }

    #[test]
    fn before_a_deletion_what_was_missed_is_a_few_rows_whatever_the_policies() {
        use MisfirePolicy::{FireAll, FireOnce, Skip as SkipMissed};
        use OverlapPolicy::{Allow, CancelPrevious, Queue, Skip};
        let cases: &[(OverlapPolicy, MisfirePolicy, &str, &[&str])] = &[
            // overlap, misfire, now, what is written
            (Skip, FireAll, "12:00:10", &["12:00 fired"]),
            (Skip, FireAll, "23:59:10", &["12:00-23:58 x719 misfire", "23:59 fired"]),
            (Queue, FireAll, "23:59:40", &["12:00-23:59 x720 misfire"]),
            (CancelPrevious, FireAll, "23:59:40", &["12:00-23:59 x720 misfire"]),
            (Allow, SkipMissed, "23:59:40", &["12:00-23:59 x720 misfire"]),
            (Allow, FireOnce, "23:59:40", &["12:00-23:58 x719 coalesced", "23:59 fired"]),
        ];
        // Also where whatever is a day late would just fire.
        for misfire_threshold in [THRESHOLD, TimeDelta::days(1)] {
            let rules = FireRules { misfire_threshold, ..rules() };
            for (overlap, misfire, now, expected) in cases {
                let due = every_minute(|definition| {
                    definition.overlap_policy = *overlap;
                    definition.misfire_policy = *misfire;
                });
                let tick = decide_before_deletion(&due, at(now), &rules).unwrap();
                assert_eq!(shown(&tick), *expected, "{overlap:?} {misfire:?} {now} {misfire_threshold}");
                assert!(tick.next_fire_at.unwrap() > at(now));
            }
        }
    }

    #[test]
    fn a_schedule_ends_at_its_last_fire_and_before_its_end() {
        let due = every_minute(|definition| {
            definition.max_fires = Some(2);
            definition.overlap_policy = OverlapPolicy::Allow;
            definition.misfire_policy = MisfirePolicy::FireAll;
        });
        let tick = decide(&due, at("12:05:00"), &rules()).unwrap();
        assert_eq!((shown(&tick), tick.next_fire_at), (vec!["12:00 fired".into(), "12:01 fired".into()], None));

        let due = every_minute(|definition| definition.end_at = Some(at("12:01:00")));
        let tick = decide(&due, at("12:05:00"), &rules()).unwrap();
        assert_eq!((shown(&tick), tick.next_fire_at), (vec!["12:00 fired".into()], None));
    }

    #[test]
    fn a_start_may_fire_itself() {
        let due = every_minute(|definition| definition.start_at = Some(at("12:10:00")));
        assert_eq!(due.schedule.next_fire_at, Some(at("12:10:00")));
        let due = every_minute(|definition| {
            definition.start_at = Some(at("12:10:00"));
            definition.rhythm = Rhythm::Every(60_000);
        });
        assert_eq!(due.schedule.next_fire_at, Some(at("12:10:00")));
    }

    #[test]
    fn jitter_moves_the_task_and_not_the_instant_and_is_always_the_same() {
        let due = every_minute(|definition| definition.jitter_seconds = 20);
        let run_at = |tick: &Tick| match &tick.fires[0].disposition {
            Disposition::Fired(task) => task.due,
            Disposition::Skipped { .. } => unreachable!("fresh and alone"),
        };
        let first = decide(&due, at("12:00:00"), &rules()).unwrap();
        let again = decide(&due, at("12:00:05"), &rules()).unwrap();
        assert_eq!(first.fires[0].scheduled_at, at("12:00:00"));
        assert_eq!(run_at(&first), run_at(&again));
        let Due::At(moved) = run_at(&first) else { unreachable!("fires are due at an instant") };
        assert!((at("12:00:00")..at("12:00:20")).contains(&moved));
    }

    #[test]
    fn what_was_missed_or_runs_in_order_is_due_when_it_is_made_and_all_else_at_its_instant() {
        use MisfirePolicy::{FireAll, FireOnce};
        use OverlapPolicy::{Allow, Queue, Skip};
        let cases: &[(OverlapPolicy, MisfirePolicy, &str, &[&str])] = &[
            // overlap, misfire, now, when each task is due
            (Allow, FireOnce, "12:00:10", &["12:00:00"]),
            (Queue, FireOnce, "12:00:10", &["12:00:10"]),
            (Skip, FireOnce, "12:02:40", &["12:02:40"]),
            (Allow, FireAll, "12:02:10", &["12:02:10", "12:02:10", "12:02:00"]),
            (Queue, FireAll, "12:02:10", &["12:02:10", "12:02:10", "12:02:10"]),
        ];
        let run_at = |fire: &NewFire| match &fire.disposition {
            Disposition::Fired(task) => match task.due {
                Due::At(run_at) => Some(run_at.format("%H:%M:%S").to_string()),
                _ => None,
            },
            Disposition::Skipped { .. } => None,
        };
        for (overlap, misfire, now, expected) in cases {
            let due = every_minute(|definition| {
                definition.overlap_policy = *overlap;
                definition.misfire_policy = *misfire;
            });
            let tick = decide(&due, at(now), &rules()).unwrap();
            let instants: Vec<_> = tick.fires.iter().filter_map(run_at).collect();
            assert_eq!(instants, *expected, "{overlap:?} {misfire:?} {now}");
        }
        // A node whose turn came with an older reading of the clock does not put its tasks in front.
        let mut due = every_minute(|definition| definition.overlap_policy = Queue);
        due.schedule.last_fired_at = Some(at("12:00:20"));
        let tick = decide(&due, at("12:00:10"), &rules()).unwrap();
        assert_eq!(run_at(&tick.fires[0]).as_deref(), Some("12:00:20"));
    }

    #[test]
    fn room_is_shared_by_the_schedules_of_a_transaction() {
        let all = |definition: &mut Definition| {
            definition.misfire_policy = MisfirePolicy::FireAll;
            definition.overlap_policy = OverlapPolicy::Allow;
        };
        let mut room = Room { fires: 15, fires_of_one: 10, instants: 1_000 };
        for (expected, next) in [(10, "12:10:00"), (5, "12:05:00"), (0, "12:00:00")] {
            let tick = decide_within(&every_minute(all), at("13:00:00"), &rules(), &mut room).unwrap();
            assert_eq!((tick.fires.len(), tick.next_fire_at), (expected, Some(at(next))));
        }
        assert!(room.is_used_up());
        let mut room = Room { fires: 100, fires_of_one: 100, instants: 25 };
        let due = every_minute(|definition| definition.misfire_policy = MisfirePolicy::Skip);
        let tick = decide_within(&due, at("13:00:00"), &rules(), &mut room).unwrap();
        assert_eq!((shown(&tick), room.is_used_up()), (vec!["12:00-12:24 x25 misfire".to_owned()], true));
    }

    #[test]
    fn the_task_of_a_fire_carries_what_the_schedule_says() {
        let due = every_minute(|definition| {
            definition.max_retries = Some(0);
            definition.priority = 7;
            definition.timezone = "Europe/Berlin".into();
        });
        let task = due.schedule.task_of_fire(at("12:00:00"), false, None);
        assert_eq!((task.retry.attempts, task.priority, task.timezone.as_str()), (1, 7, "Europe/Berlin"));
        assert_eq!(task.fire.unwrap().scheduled_at, at("12:00:00"));
    }
}
