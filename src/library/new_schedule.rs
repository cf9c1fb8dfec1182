//! A schedule to be written, as a program says it.

use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::invalid::{Invalid, check_key};
use punctual_domain::json::Json;
use punctual_domain::schedule::{Definition, MisfirePolicy, OverlapPolicy, Rhythm, Schedule, ScheduleError};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::Topic;
use serde::Serialize;

use super::new_task::{seconds, to_json};

/// A schedule to be written: a name, a topic, a rhythm, and whatever else is not left to the defaults.
///
/// ```
/// use std::time::Duration;
/// use punctual::NewSchedule;
///
/// let on_weekdays = NewSchedule::new("morning report", "report.send").cron("0 9 * * 1-5", "America/Mexico_City");
/// let heartbeat = NewSchedule::new("heartbeat", "agent.heartbeat").every(Duration::from_secs(60), "UTC");
/// ```
#[derive(Debug, Clone)]
#[must_use]
pub struct NewSchedule {
    definition: Definition,
    has_rhythm: bool,
    /// Why the payload is none.
    bad_payload: Option<String>,
    client_request_id: Option<String>,
}

impl NewSchedule {
    /// A schedule of that name, which no other has, whose fires make tasks of that topic.
    pub fn new(name: impl Into<String>, topic: impl Into<String>) -> Self {
        let unset = Rhythm::Cron(String::new());
        let topic: String = topic.into();
        Self {
            definition: Definition::new(name, unset, "UTC", &Topic::from_stored(topic)),
            has_rhythm: false,
            bad_payload: None,
            client_request_id: None,
        }
    }

    /// Fires by a cron expression, read in an IANA zone.
    pub fn cron(self, expression: impl Into<String>, timezone: impl Into<String>) -> Self {
        self.with_rhythm(Rhythm::Cron(expression.into()), timezone.into())
    }

    /// Fires each time so much has passed, at least a second. The zone is handed on to handlers.
    pub fn every(self, interval: Duration, timezone: impl Into<String>) -> Self {
        let ms = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        self.with_rhythm(Rhythm::Every(ms), timezone.into())
    }

    /// Says what it is for.
    pub fn description(self, text: impl Into<String>) -> Self {
        self.with(|definition| definition.description = Some(text.into()))
    }

    /// Its tasks carry this payload, of at most 1 MiB of JSON.
    pub fn payload(mut self, payload: impl Serialize) -> Self {
        let payload = to_json(&payload);
        self.bad_payload = payload.as_ref().err().cloned();
        self.with(|definition| definition.payload = payload.unwrap_or_else(|_| Json::empty_object()))
    }

    /// Its tasks have so many attempts in all.
    pub fn attempts(self, attempts: u32) -> Self {
        self.with(|definition| definition.max_retries = Some(attempts))
    }

    /// Their attempts have this time limit, in whole seconds.
    pub fn timeout(self, limit: Duration) -> Self {
        self.with(|definition| definition.timeout_seconds = Some(seconds(limit)))
    }

    /// They have this priority, -100 to 100; larger goes first.
    pub fn priority(self, priority: i32) -> Self {
        self.with(|definition| definition.priority = priority)
    }

    /// What happens when a fire is due while a task of an earlier one has not ended.
    pub fn overlap(self, policy: OverlapPolicy) -> Self {
        self.with(|definition| definition.overlap_policy = policy)
    }

    /// What happens to instants that nobody saw in time.
    pub fn misfire(self, policy: MisfirePolicy) -> Self {
        self.with(|definition| definition.misfire_policy = policy)
    }

    /// The first instant that may fire.
    pub fn start_at(self, at: DateTime<Utc>) -> Self {
        self.with(|definition| definition.start_at = Some(at))
    }

    /// The instant before which the last may fire.
    pub fn end_at(self, at: DateTime<Utc>) -> Self {
        self.with(|definition| definition.end_at = Some(at))
    }

    /// How many fires make a task before it is done.
    pub fn max_fires(self, fires: u64) -> Self {
        self.with(|definition| definition.max_fires = Some(fires))
    }

    /// With an entry of metadata, handed on to its tasks.
    pub fn metadata(self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.with(|definition| drop(definition.metadata.insert(key.into(), value.into())))
    }

    /// With an id that never makes two tasks or schedules: a second one is refused.
    pub fn client_request_id(mut self, id: impl Into<String>) -> Self {
        self.client_request_id = Some(id.into());
        self
    }

    fn with(mut self, change: impl FnOnce(&mut Definition)) -> Self {
        change(&mut self.definition);
        self
    }

    fn with_rhythm(mut self, rhythm: Rhythm, timezone: String) -> Self {
        self.has_rhythm = true;
        self.with(|definition| {
            definition.rhythm = rhythm;
            definition.timezone = timezone;
        })
    }

    /// The schedule as the store takes it, with its first instant.
    pub(super) fn check(self, zones: &ZoneDatabase, now: DateTime<Utc>) -> Result<Schedule, Invalid> {
        let mut invalid = Invalid::default();
        if let Err(Invalid(more)) = self.definition.validate() {
            invalid.0.extend(more);
        }
        if let Some(reason) = self.bad_payload {
            invalid.add("payload", reason);
        }
        if let Some(id) = &self.client_request_id {
            invalid.check("clientRequestId", check_key(id));
        }
        if !self.has_rhythm {
            invalid.add("cronExpression", "is required, or everyMs");
            return Err(invalid);
        }
        let made = Schedule::new(self.definition, now, zones).map_err(|error| {
            let field = match error {
                ScheduleError::Expression(_) => "cronExpression",
                ScheduleError::Zone(_) => "timezone",
                ScheduleError::Interval => "everyMs",
                ScheduleError::EndsBeforeItFires => "endAt",
                ScheduleError::StartsTooLate => "startAt",
                ScheduleError::OnlyInGaps => "dstGap",
            };
            invalid.add(field, error);
        });
        match made {
            Ok(schedule) => invalid.or(Schedule { client_request_id: self.client_request_id, ..schedule }),
            Err(()) => Err(invalid),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(schedule: NewSchedule) -> Result<Schedule, Vec<String>> {
        schedule
            .check(&ZoneDatabase::bundled(), "2026-11-16T12:00:00Z".parse().unwrap())
            .map_err(|invalid| invalid.0.into_iter().map(|error| error.field).collect())
    }

    #[test]
    fn the_first_instant_follows_the_rhythm_in_its_zone() {
        let cron = check(NewSchedule::new("a", "t").cron("30 8 * * *", "America/Edmonton")).unwrap();
        assert_eq!(cron.next_fire_at, Some("2026-11-16T14:30:00Z".parse().unwrap()));
        let every = check(NewSchedule::new("a", "t").every(Duration::from_secs(90), "UTC")).unwrap();
        assert_eq!(every.next_fire_at, Some("2026-11-16T12:01:30Z".parse().unwrap()));
    }

    #[test]
    fn every_bad_field_is_named() {
        let late = "2026-11-16T12:00:01Z".parse().unwrap();
        for (schedule, fields) in [
            (NewSchedule::new("", "a b"), vec!["name", "topic", "cronExpression"]),
            (NewSchedule::new("a", "t").cron("0 0 30 2 *", "UTC"), vec!["cronExpression"]),
            (NewSchedule::new("a", "t").cron("0 0 * * *", "EST"), vec!["timezone"]),
            (NewSchedule::new("a", "t").every(Duration::from_millis(999), "UTC"), vec!["everyMs"]),
            (NewSchedule::new("a", "t").cron("@daily", "UTC").end_at(late), vec!["endAt"]),
            (
                NewSchedule::new("a", "t").cron("@daily", "UTC").payload("\0").metadata("", ""),
                vec!["metadata", "payload"],
            ),
            (NewSchedule::new("a", "t").cron("@daily", "UTC").client_request_id(""), vec!["clientRequestId"]),
        ] {
            assert_eq!(check(schedule).unwrap_err(), fields);
        }
    }
}
