//! What should have fired: the instants of a schedule, as its history has it.
//!
//! Each version of a schedule is due from when it was written until the next one was. Two clocks write a version: the
//! caller's, which planned its first instant, and the store's, which says since when it holds. So its first instant may
//! lie a moment before "since", and then belongs to the new version; the same moment is never asked of both.

use chrono::{DateTime, TimeDelta, Utc};

use super::Question;
use crate::schedule::{Schedule, ScheduleError};
use crate::time::Recurrence;

/// By how much the clock that planned a version may be ahead of the store's.
const TOLERATED_OFFSET: TimeDelta = TimeDelta::seconds(2);
/// Instants are stored with microseconds.
const TICK: TimeDelta = TimeDelta::microseconds(1);

/// The instants that were due, in order.
pub(super) struct Expected {
    stretches: Vec<Stretch>,
    current: usize,
    /// The next one, and the stretch it belongs to.
    next: Option<(DateTime<Utc>, usize)>,
}

/// A stretch in which one version of the schedule was due.
pub(super) struct Stretch {
    schedule: Schedule,
    recurrence: Recurrence,
    /// Instants after this one belong to it …
    after: DateTime<Utc>,
    /// … up to this one.
    through: DateTime<Utc>,
    /// How far its instants had been decided when it ended.
    pub(super) decided_through: Decided,
    /// When the next version, or the deletion, ended it.
    pub(super) ended_at: Option<DateTime<Utc>>,
}

/// How far the instants of a stretch were decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decided {
    /// Up to here; the store says so.
    Through(DateTime<Utc>),
    /// As far as there are fires: the schedule was deleted, and its watermark with it.
    AsFarAsSeen,
    /// The same, and it may have been done before it was deleted: it had a most number of fires.
    OrDone,
}

impl Expected {
    pub(super) fn new(question: &Question<'_>) -> Result<Self, ScheduleError> {
        let mut stretches = Vec::new();
        for (i, version) in question.history.iter().enumerate() {
            if let Some(stretch) = Stretch::of(question, i, version)? {
                stretches.push(stretch);
            }
        }
        let mut expected = Self { stretches, current: 0, next: None };
        expected.find(None);
        Ok(expected)
    }

    /// The next instant, which stays.
    pub(super) fn peek(&self) -> Option<DateTime<Utc>> {
        self.next.map(|(at, _)| at)
    }

    /// The next instant, with its stretch.
    pub(super) fn take(&mut self) -> Option<(DateTime<Utc>, &Stretch)> {
        let (at, stretch) = self.next?;
        self.find(Some(at));
        Some((at, &self.stretches[stretch]))
    }

    fn find(&mut self, taken: Option<DateTime<Utc>>) {
        while let Some(stretch) = self.stretches.get(self.current) {
            let after = taken.map_or(stretch.after, |taken| taken.max(stretch.after));
            let found = stretch.schedule.instant_after(&stretch.recurrence, after);
            if let Some(at) = found.filter(|at| *at <= stretch.through) {
                self.next = Some((at, self.current));
                return;
            }
            self.current += 1;
        }
        self.next = None;
    }
}

impl Stretch {
    /// The stretch of a version, if any of its instants are asked about.
    fn of(
        question: &Question<'_>,
        i: usize,
        (since, schedule): &(DateTime<Utc>, Option<Schedule>),
    ) -> Result<Option<Self>, ScheduleError> {
        let Some(schedule) = schedule else { return Ok(None) };
        let Some(after) = begins_after(schedule, *since) else { return Ok(None) };
        let next = question.history.get(i + 1);
        let (through, ended_at) = match next {
            None => (question.to - TICK, None),
            Some((until, next)) => (ends_through(*until, next.as_ref()), Some(*until)),
        };
        let now = match next {
            None => question.current,
            Some((_, next)) => next.as_ref(),
        };
        let max_fires = schedule.definition.max_fires;
        let decided_through = match now {
            Some(now) => Decided::Through(now.fired_through.unwrap_or(DateTime::<Utc>::MIN_UTC)),
            None if max_fires.is_some() => Decided::OrDone,
            None => Decided::AsFarAsSeen,
        };
        let through = match decided_through {
            // All its fires were made; what came after the last of them was not due.
            Decided::Through(decided)
                if max_fires.is_some_and(|most| now.is_some_and(|now| now.fires_made >= most)) =>
            {
                through.min(decided)
            }
            _ => through,
        };
        let (after, through) = (after.max(question.from - TICK), through.min(question.to - TICK));
        if after >= through {
            return Ok(None);
        }
        let recurrence = schedule.definition.recurrence(question.zones, schedule.created_at)?;
        Ok(Some(Self { schedule: schedule.clone(), recurrence, after, through, decided_through, ended_at }))
    }
}

/// The instant after which a version is due; `None` if it is paused for good.
fn begins_after(schedule: &Schedule, since: DateTime<Utc>) -> Option<DateTime<Utc>> {
    if !schedule.enabled {
        // The instant of the end itself may fire.
        return schedule.paused_until.map(|until| since.max(until - TICK));
    }
    let planned = match schedule.next_fire_at {
        // It kept an instant that was due, or its clock was a little behind.
        Some(first) if first <= since => first - TICK,
        // Its clock may have been a little ahead.
        Some(first) => (first - TICK).min(since + TOLERATED_OFFSET),
        None => since,
    };
    Some(schedule.fired_through.map_or(planned, |through| through.max(planned)))
}

/// The last instant before the version that came next.
fn ends_through(until: DateTime<Utc>, next: Option<&Schedule>) -> DateTime<Utc> {
    match next.filter(|next| next.enabled).and_then(|next| next.next_fire_at) {
        Some(first) if first <= until => first - TICK,
        _ => until,
    }
}
