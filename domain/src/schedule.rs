//! A schedule: a recurring definition, and what makes one valid.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, SubsecRound, Utc};
use serde::{Deserialize, Serialize};

use crate::id::ScheduleId;
use crate::invalid::{Invalid, check_key, check_name};
use crate::json::Json;
use crate::retry::{Backoff, MAX_ATTEMPTS, RetryPolicy};
use crate::task::{DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS, check_metadata};
use crate::time::{
    DstFold, DstGap, DstPolicy, Expression, ExpressionError, Interval, Recurrence, ZoneDatabase, ZoneError,
};
use crate::topic::{Topic, TopicDefinition};

/// How many attempts the tasks of a schedule have where nobody says it.
pub const DEFAULT_ATTEMPTS: u32 = 3;
/// The longest description, in characters.
pub const MAX_DESCRIPTION: usize = 10_000;
/// The longest misfire window: a year.
pub const MAX_MISFIRE_WINDOW_SECONDS: u32 = 366 * 24 * 60 * 60;
/// The most by which tasks are moved behind their instant: a day.
pub const MAX_JITTER_SECONDS: u32 = 24 * 60 * 60;
/// The most fires that can be asked for; every reader of JSON knows the number.
pub const MAX_FIRES: u64 = 1 << 53;
/// The most calendars that a schedule names.
pub const MAX_CALENDARS: usize = 50;

/// When a schedule fires, as the user wrote it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub enum Rhythm {
    /// A cron expression, read in the schedule's zone.
    #[serde(rename = "cronExpression")]
    Cron(String),
    /// Elapsed milliseconds between fires.
    #[serde(rename = "everyMs")]
    Every(u64),
}

/// What happens when a fire is due while a task of an earlier one has not ended.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OverlapPolicy {
    /// The fire is skipped.
    #[default]
    Skip,
    /// Its task waits for the earlier ones, in order.
    Queue,
    /// What has not ended is cancelled, then its task starts.
    CancelPrevious,
    /// Both run.
    Allow,
}

/// What happens to instants that nobody saw in time.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MisfirePolicy {
    /// The latest of them fires.
    #[default]
    FireOnce,
    /// All of them fire, in order.
    FireAll,
    /// None of them fires.
    Skip,
}

/// What a caller says about a schedule.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Definition {
    /// Unique among schedules.
    pub name: String,
    /// For people.
    pub description: Option<String>,
    /// When it fires.
    pub rhythm: Rhythm,
    /// The zone its expression is read in, as given.
    pub timezone: String,
    /// Where its tasks go.
    pub topic: String,
    /// What its tasks carry.
    pub payload: Json,
    /// How many attempts its tasks have in all, if not as the topic says; 0 means 1.
    pub max_retries: Option<u32>,
    /// How long they wait in between, if not as the topic says.
    pub backoff: Option<Backoff>,
    /// The time limit of their attempts, if not as the topic says.
    pub timeout_seconds: Option<u32>,
    /// Their priority.
    pub priority: i32,
    /// What happens when fires overlap.
    pub overlap_policy: OverlapPolicy,
    /// What happens to missed instants.
    pub misfire_policy: MisfirePolicy,
    /// How old a missed instant may be and still fire.
    pub misfire_window_seconds: u32,
    /// The most by which tasks are moved behind their instant.
    pub jitter_seconds: u32,
    /// The first instant that may fire.
    pub start_at: Option<DateTime<Utc>>,
    /// The instant before which the last may fire.
    pub end_at: Option<DateTime<Utc>>,
    /// How many fires make a task before the schedule is done.
    pub max_fires: Option<u64>,
    /// What happens to times that a clock change skips, if not the rule.
    pub dst_gap: Option<DstGap>,
    /// What happens to times that a clock change repeats, if not the rule.
    pub dst_fold: Option<DstFold>,
    /// Calendars whose days it leaves out.
    pub exclude_calendars: Vec<String>,
    /// Handed on to its tasks.
    pub metadata: BTreeMap<String, String>,
    /// Who made it.
    pub created_by: Option<String>,
}

/// A schedule as the store knows it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Schedule {
    /// Its id.
    pub id: ScheduleId,
    /// What was said about it.
    pub definition: Definition,
    /// Never makes two tasks or schedules.
    pub client_request_id: Option<String>,
    /// Whether anything is due at all; `false` is paused.
    pub enabled: bool,
    /// Why it is paused.
    pub pause_note: Option<String>,
    /// When it resumes by itself.
    pub paused_until: Option<DateTime<Utc>>,
    /// When a fire last made a task.
    pub last_fired_at: Option<DateTime<Utc>>,
    /// The next instant; `None` while disabled or done.
    pub next_fire_at: Option<DateTime<Utc>>,
    /// Instants up to here are accounted for and never fire again, even when their rows are pruned.
    pub fired_through: Option<DateTime<Utc>>,
    /// The release of the zone data that the next instant was computed with.
    #[serde(default)]
    pub tz_version: String,
    /// How many fires made a task because their instant came; what was triggered or filled in does not count.
    pub fires_made: u64,
    /// When it was made.
    pub created_at: DateTime<Utc>,
    /// When it was last edited.
    pub updated_at: DateTime<Utc>,
    /// Changes with edits, not with fires.
    pub version: u64,
}

/// Why a schedule cannot be understood.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// Its expression cannot be read, or never fires.
    #[error(transparent)]
    Expression(#[from] ExpressionError),
    /// Its zone is unknown.
    #[error(transparent)]
    Zone(#[from] ZoneError),
    /// Its interval is too short or too long.
    #[error("everyMs must be 1000 to {} (ten years)", Definition::MAX_EVERY_MS)]
    Interval,
    /// Its `endAt` leaves it no instant.
    #[error("endAt leaves it no instant to fire at")]
    EndsBeforeItFires,
    /// Its `startAt` leaves it no instant that is looked for.
    #[error("startAt leaves it no instant before the year 9999, and later ones are not looked for")]
    StartsTooLate,
    /// Clock changes skip all its instants.
    #[error("it names only times that clock changes skip, and dstGap skips those")]
    OnlyInGaps,
}

impl Definition {
    /// The longest interval: ten years.
    pub const MAX_EVERY_MS: u64 = 10 * 366 * 24 * 60 * 60 * 1000;

    /// A definition with nothing but what is required; every default in place.
    pub fn new(name: impl Into<String>, rhythm: Rhythm, timezone: impl Into<String>, topic: &Topic) -> Self {
        Self {
            name: name.into(),
            description: None,
            rhythm,
            timezone: timezone.into(),
            topic: topic.to_string(),
            payload: Json::empty_object(),
            max_retries: None,
            backoff: None,
            timeout_seconds: None,
            priority: 0,
            overlap_policy: OverlapPolicy::default(),
            misfire_policy: MisfirePolicy::default(),
            misfire_window_seconds: 86_400,
            jitter_seconds: 0,
            start_at: None,
            end_at: None,
            max_fires: None,
            dst_gap: None,
            dst_fold: None,
            exclude_calendars: Vec::new(),
            metadata: BTreeMap::new(),
            created_by: None,
        }
    }

    /// The rule it fires by; `anchor` is what an interval counts from where there is no `startAt`.
    ///
    /// # Errors
    /// When the expression, the zone or the interval is not acceptable.
    pub fn recurrence(&self, zones: &ZoneDatabase, anchor: DateTime<Utc>) -> Result<Recurrence, ScheduleError> {
        // The zone is checked for intervals too: it is echoed in every event.
        let zone = zones.zone(&self.timezone)?;
        match &self.rhythm {
            Rhythm::Cron(text) => Ok(Recurrence::Cron {
                expression: Expression::parse(text)?,
                zone,
                dst: DstPolicy { gap: self.dst_gap, fold: self.dst_fold },
            }),
            Rhythm::Every(ms) if (1000..=Self::MAX_EVERY_MS).contains(ms) => {
                Interval::new(*ms, self.start_at.unwrap_or(anchor))
                    .map(Recurrence::Interval)
                    .map_err(|_| ScheduleError::Interval)
            }
            Rhythm::Every(_) => Err(ScheduleError::Interval),
        }
    }

    /// Checks what can be checked without a zone database.
    ///
    /// # Errors
    /// Every bad field, by its name in the API.
    pub fn validate(&self) -> Result<(), Invalid> {
        let mut invalid = Invalid::default();
        invalid.check("name", check_name(&self.name));
        invalid.check("topic", self.topic.parse::<Topic>());
        if self.description.as_ref().is_some_and(|text| text.chars().count() > MAX_DESCRIPTION || text.contains('\0')) {
            invalid.add("description", format!("must have at most {MAX_DESCRIPTION} characters, and no U+0000"));
        }
        if let Some(created_by) = &self.created_by {
            invalid.check("createdBy", check_key(created_by));
        }
        if self.max_retries.is_some_and(|attempts| attempts > MAX_ATTEMPTS) {
            invalid.add("maxRetries", format!("must be 0 to {MAX_ATTEMPTS}"));
        }
        if let Some(backoff) = &self.backoff {
            backoff.check("retry.backoff", &mut invalid);
        }
        if self.timeout_seconds.is_some_and(|seconds| !(1..=MAX_TIMEOUT_SECONDS).contains(&seconds)) {
            invalid.add("timeoutSeconds", format!("must be 1 to {MAX_TIMEOUT_SECONDS} (30 days)"));
        }
        if !(-100..=100).contains(&self.priority) {
            invalid.add("priority", "must be -100 to 100");
        }
        if self.misfire_window_seconds > MAX_MISFIRE_WINDOW_SECONDS {
            let most = MAX_MISFIRE_WINDOW_SECONDS;
            invalid.add("misfireWindowSeconds", format!("must be 0 to {most} (a year)"));
        }
        if self.jitter_seconds > MAX_JITTER_SECONDS {
            invalid.add("jitterSeconds", format!("must be 0 to {MAX_JITTER_SECONDS} (a day)"));
        }
        if let (Some(start_at), Some(end_at)) = (self.start_at, self.end_at)
            && end_at <= start_at
        {
            invalid.add("endAt", "must be after startAt");
        }
        check_metadata(&self.metadata, &mut invalid);
        if self.max_fires.is_some_and(|fires| !(1..=MAX_FIRES).contains(&fires)) {
            invalid.add("maxFires", format!("must be 1 to {MAX_FIRES}"));
        }
        if self.exclude_calendars.len() > MAX_CALENDARS {
            invalid.add("excludeCalendars", format!("must name at most {MAX_CALENDARS} calendars"));
        }
        for (position, name) in self.exclude_calendars.iter().enumerate().take(MAX_CALENDARS) {
            if invalid.check("excludeCalendars", check_key(name)).is_some()
                && self.exclude_calendars[..position].contains(name)
            {
                invalid.add("excludeCalendars", format!("names {name:?} twice; say it once"));
            }
        }
        invalid.or(())
    }

    /// The retry policy of its tasks: what it says itself, else what its topic says, else the default.
    pub fn retry(&self, topic: Option<&TopicDefinition>) -> RetryPolicy {
        let of_topic = topic.and_then(|topic| topic.retry);
        let attempts = self.max_retries.or(of_topic.map(|retry| retry.attempts)).unwrap_or(DEFAULT_ATTEMPTS);
        let backoff = self.backoff.or(of_topic.map(|retry| retry.backoff)).unwrap_or_default();
        RetryPolicy { attempts: attempts.max(1), backoff }
    }

    /// The time limit of its tasks' attempts, found in the same order.
    pub fn timeout(&self, topic: Option<&TopicDefinition>) -> u32 {
        let of_topic = topic.and_then(|topic| topic.timeout_seconds);
        self.timeout_seconds.or(of_topic).unwrap_or(DEFAULT_TIMEOUT_SECONDS)
    }

    /// Where a search for instants after `after` begins: `startAt` itself may fire, so it begins just before it.
    pub fn from(&self, after: DateTime<Utc>) -> DateTime<Utc> {
        self.start_at.map_or(after, |start_at| after.max(start_at - Duration::from_nanos(1)))
    }

    /// By how much its tasks are moved behind their instant: a stable share of the jitter.
    pub fn jitter(&self, id: ScheduleId) -> Duration {
        let span = u64::from(self.jitter_seconds) * 1000;
        // The low half of a v7 id is random, and stays what it is for as long as the schedule lives.
        let share = u64::from_be_bytes(id.0.as_bytes()[8..].try_into().unwrap_or_default());
        Duration::from_millis(if span == 0 { 0 } else { share % span })
    }
}

impl Schedule {
    /// A new schedule whose first instant is after `now`.
    ///
    /// # Errors
    /// When the definition cannot be understood, or would never fire.
    pub fn new(definition: Definition, now: DateTime<Utc>, zones: &ZoneDatabase) -> Result<Self, ScheduleError> {
        // An interval counts from here: its instants have whole milliseconds, as they are shown.
        let now = now.trunc_subsecs(3);
        let mut schedule = Self {
            id: ScheduleId::generate(),
            definition,
            client_request_id: None,
            enabled: true,
            pause_note: None,
            paused_until: None,
            last_fired_at: None,
            next_fire_at: None,
            fired_through: None,
            tz_version: String::new(),
            fires_made: 0,
            created_at: now,
            updated_at: now,
            version: 1,
        };
        schedule.check_fires(zones)?;
        schedule.plan(now, zones)?;
        Ok(schedule)
    }

    /// The same schedule with another definition, and its next instant after `now`.
    ///
    /// # Errors
    /// When the definition cannot be understood, or would never have fired.
    pub fn edited(
        self,
        definition: Definition,
        now: DateTime<Utc>,
        zones: &ZoneDatabase,
    ) -> Result<Self, ScheduleError> {
        let mut edited = Self { definition, ..self };
        edited.check_fires(zones)?;
        edited.plan(now, zones)?;
        Ok(edited)
    }

    /// The same schedule, with nothing due any more until `until`, or until somebody resumes it.
    #[must_use]
    pub fn paused(self, note: Option<String>, until: Option<DateTime<Utc>>) -> Self {
        Self { enabled: false, pause_note: note, paused_until: until, next_fire_at: None, ..self }
    }

    /// The same schedule, with its next instant after `after`.
    ///
    /// # Errors
    /// When the definition cannot be understood.
    pub fn resumed(self, after: DateTime<Utc>, zones: &ZoneDatabase) -> Result<Self, ScheduleError> {
        let mut resumed = Self { enabled: true, pause_note: None, paused_until: None, ..self };
        resumed.plan(after, zones)?;
        Ok(resumed)
    }

    /// When something is to be done about it: fire, or resume. What becomes of its instants from then on is decided when
    /// their time comes; `None` if that is so for none.
    pub fn due_at(&self) -> Option<DateTime<Utc>> {
        if self.enabled { self.next_fire_at } else { self.paused_until }
    }

    /// Whether something is to be done about it at `now`.
    pub fn is_due(&self, now: DateTime<Utc>) -> bool {
        self.due_at().is_some_and(|due_at| due_at <= now)
    }

    /// Sets the next instant to the first one after `now`: an edit or a resume never fires retroactively.
    ///
    /// # Errors
    /// When the definition cannot be understood.
    pub fn plan(&mut self, now: DateTime<Utc>, zones: &ZoneDatabase) -> Result<(), ScheduleError> {
        let recurrence = self.definition.recurrence(zones, self.created_at)?;
        let accounted_for = self.fired_through.map_or(now, |through| through.max(now));
        self.next_fire_at = if self.enabled { self.instant_after(&recurrence, accounted_for) } else { None };
        self.tz_version = zones.version().to_owned();
        Ok(())
    }

    /// Checks that there is an instant between `startAt`, or when it was made, and `endAt`.
    fn check_fires(&self, zones: &ZoneDatabase) -> Result<(), ScheduleError> {
        let recurrence = self.definition.recurrence(zones, self.created_at)?;
        let from = self.definition.from(self.created_at);
        match (recurrence.next_after(from), self.definition.end_at) {
            (None, _) => {
                let through_gaps = Definition { dst_gap: Some(DstGap::NextValid), ..self.definition.clone() };
                let first = through_gaps.recurrence(zones, self.created_at)?.next_after(from);
                Err(if first.is_some() { ScheduleError::OnlyInGaps } else { ScheduleError::StartsTooLate })
            }
            (Some(first), Some(end_at)) if first >= end_at => Err(ScheduleError::EndsBeforeItFires),
            (Some(_), _) => Ok(()),
        }
    }

    /// The first instant after `after` within `startAt`, `endAt` and `maxFires`.
    pub fn instant_after(&self, recurrence: &Recurrence, after: DateTime<Utc>) -> Option<DateTime<Utc>> {
        if self.definition.max_fires.is_some_and(|most| self.fires_made >= most) {
            return None;
        }
        let next = recurrence.next_after(self.definition.from(after));
        next.filter(|at| self.definition.end_at.is_none_or(|end_at| *at < end_at))
    }
}
