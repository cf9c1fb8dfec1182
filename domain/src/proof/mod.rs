//! The proof: what a schedule should have fired, from its own history, against what the ledger says it did.
//!
//! [`Prover`] walks both in the order of instants, so it never holds more than a page of the ledger. Every instant that
//! was due is one of:
//!
//! - **fired**, or **skipped** for a reason, by a row of the ledger; or **filled**, by a backfill alone;
//! - **missing**: nobody decided it, and nothing below explains that;
//! - **pending**: so fresh that it need not be decided yet;
//! - **overtaken**: so fresh, when the schedule was edited, paused or deleted, that it need not have been decided;
//! - **moved**: the ledger has another instant for it, computed with another release of zone data;
//! - **pruned**: so old that its row may have been removed; nothing can be proven about it.
//!
//! And the ledger may say too much: an instant that made two tasks or was decided twice is **double**, one that the
//! schedule does not have is **unexpected**.

mod expected;
mod listed;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

pub use listed::Listed;

use crate::fire::{FireKind, SkipReason};
use crate::schedule::{Schedule, ScheduleError};
use crate::time::ZoneDatabase;
use expected::{Decided, Expected, Stretch};

/// A fire whose task was made later than this after its instant is late.
pub const LATE_AFTER: TimeDelta = TimeDelta::seconds(1);
/// How far zone data may move an instant.
const MOST_MOVED: TimeDelta = TimeDelta::hours(26);

/// What is to be proven about one schedule, and what that rests on.
#[derive(Debug, Clone, Copy)]
pub struct Question<'a> {
    /// What it was from when on, oldest first; `None` where it was deleted.
    pub history: &'a [(DateTime<Utc>, Option<Schedule>)],
    /// What it is, read before its ledger; `None` if it was deleted.
    pub current: Option<&'a Schedule>,
    /// The first instant asked about.
    pub from: DateTime<Utc>,
    /// The first instant not asked about any more; not after the store's present instant.
    pub to: DateTime<Utc>,
    /// The store's present instant, read before everything else.
    pub now: DateTime<Utc>,
    /// Fires made before this instant may have been removed.
    pub pruned_before: Option<DateTime<Utc>>,
    /// How long an instant may stay undecided.
    pub misfire_threshold: TimeDelta,
    /// The zone rules to compute with.
    pub zones: &'a ZoneDatabase,
    /// Instants for which there are several tasks, none of them a retry, and how many.
    pub several_tasks: &'a [(DateTime<Utc>, u64)],
}

/// A row of the ledger: what became of an instant, or of a run of skipped ones.
#[derive(Debug, Clone, PartialEq)]
pub struct LedgerRow {
    /// What made it happen.
    pub kind: FireKind,
    /// Its instant; the first of a run.
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
}

/// What was found about one schedule.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Proof {
    /// How many instants were due.
    pub expected: u64,
    /// How many of them made a task because they came.
    pub fired: u64,
    /// How many were skipped, by reason.
    pub skipped: BTreeMap<&'static str, u64>,
    /// How many were filled in by a backfill, and by nothing else.
    pub filled: u64,
    /// Those that nobody decided.
    pub missing: Listed,
    /// Those that made two tasks, or were decided twice.
    pub double: Listed,
    /// Fires at instants that the schedule does not have.
    pub unexpected: Listed,
    /// Runs of skipped instants that count another number of them than there are.
    pub miscounted: Listed,
    /// Instants as they should be by today's zone data, and as they were by that of then.
    pub moved: Vec<(DateTime<Utc>, DateTime<Utc>)>,
    /// How many fired later than [`LATE_AFTER`] after their instant.
    pub late: u64,
    /// The longest delay of a fire.
    pub max_lag: TimeDelta,
    /// How many need not be decided yet.
    pub pending: u64,
    /// How many were overtaken by an edit, a pause or the deletion.
    pub overtaken: u64,
    /// How many are so old that nothing can be proven.
    pub pruned: u64,
    /// How many fires somebody triggered.
    pub manual: u64,
    /// How many fires somebody filled in, of instants that were due and of others.
    pub backfilled: u64,
}

impl Proof {
    /// Whether nothing is missing and nothing too much.
    pub fn holds(&self) -> bool {
        [&self.missing, &self.double, &self.unexpected, &self.miscounted].iter().all(|listed| listed.is_empty())
    }

    /// How many instants were skipped.
    pub fn skipped_in_all(&self) -> u64 {
        self.skipped.values().sum()
    }
}

/// Compares what was due with the ledger, row by row.
pub struct Prover<'a> {
    question: Question<'a>,
    expected: Expected,
    several_tasks: BTreeMap<DateTime<Utc>, u64>,
    /// The rows of one instant.
    group: Option<Group>,
    /// The last run of skipped instants.
    run: Option<Run>,
    /// Instants at the end of a deleted schedule: missing if a fire follows.
    undecided: Listed,
    foreign: Listed,
    proof: Proof,
}

struct Group {
    at: DateTime<Utc>,
    of_schedule: Option<LedgerRow>,
    backfilled: bool,
    /// How many rows of the instant made a task.
    fired: u64,
}

struct Run {
    at: DateTime<Utc>,
    until: DateTime<Utc>,
    reason: SkipReason,
    count: u64,
    /// How many expected instants it covered so far.
    covered: u64,
    /// Whether it was computed with the zone data at hand.
    is_ours: bool,
}

impl<'a> Prover<'a> {
    /// Begins a proof.
    ///
    /// # Errors
    /// When a definition of the schedule cannot be understood.
    pub fn new(question: Question<'a>) -> Result<Self, ScheduleError> {
        Ok(Self {
            expected: Expected::new(&question)?,
            several_tasks: question.several_tasks.iter().copied().collect(),
            question,
            group: None,
            run: None,
            undecided: Listed::default(),
            foreign: Listed::default(),
            proof: Proof::default(),
        })
    }

    /// Takes the next row of the ledger, in the order of instants.
    pub fn observe(&mut self, row: LedgerRow) {
        let at = row.scheduled_at;
        if self.group.as_ref().is_some_and(|group| group.at != at) {
            self.close_group();
        }
        let group = self.group.get_or_insert(Group { at, of_schedule: None, backfilled: false, fired: 0 });
        group.fired += u64::from(row.reason.is_none());
        match row.kind {
            FireKind::Schedule => group.of_schedule = Some(row),
            FireKind::Backfill => {
                group.backfilled |= row.reason.is_none();
                self.proof.backfilled += u64::from(row.reason.is_none() && self.question.asks_about(at));
            }
            FireKind::Manual => self.proof.manual += u64::from(self.question.asks_about(at)),
        }
    }

    /// Accounts for what was due before `at`, or for all of it, at most for `most` instants; whether it came that far.
    ///
    /// `observe` and `finish` do the same without a bound: whoever must not keep others waiting walks first.
    pub fn walk(&mut self, at: Option<DateTime<Utc>>, most: usize) -> bool {
        if self.group.as_ref().is_some_and(|group| at.is_none_or(|at| group.at < at)) {
            self.close_group();
        }
        self.pass_over(at, most)
    }

    /// Ends the proof.
    pub fn finish(mut self) -> Proof {
        self.close_group();
        self.pass_over(None, usize::MAX);
        self.close_run();
        for at in self.several_tasks.into_keys().filter(|at| self.question.asks_about(*at)) {
            self.proof.double.add(at);
        }
        let mut proof = self.proof;
        proof.overtaken += self.undecided.count;
        proof.moved = proof.missing.take_pairs(&mut self.foreign, MOST_MOVED);
        proof.unexpected.append(&mut self.foreign);
        proof.double.first.sort_unstable();
        proof.unexpected.first.sort_unstable();
        proof
    }

    fn close_group(&mut self) {
        let Some(group) = self.group.take() else { return };
        let at = group.at;
        self.pass_over(Some(at), usize::MAX);
        let was_fired_by_schedule = group.of_schedule.as_ref().is_some_and(|row| row.reason.is_none());
        let mut is_double = self.several_tasks.remove(&at).is_some_and(|tasks| tasks > group.fired)
            || (was_fired_by_schedule && group.backfilled);
        let is_expected = self.expected.peek() == Some(at);
        if let Some(row) = group.of_schedule {
            is_double |= self.run.as_ref().is_some_and(|run| at <= run.until);
            let mut undecided = std::mem::take(&mut self.undecided);
            self.proof.missing.append(&mut undecided);
            if is_expected {
                self.expected.take();
                self.proof.expected += 1;
            }
            self.note(&row, is_expected);
        } else if is_expected && group.backfilled && self.run.as_ref().is_none_or(|run| at > run.until) {
            self.expected.take();
            self.proof.expected += 1;
            self.proof.filled += 1;
        }
        if is_double && self.question.asks_about(at) {
            self.proof.double.add(at);
        }
    }

    /// Notes what a row of the schedule's own says about its instant.
    fn note(&mut self, row: &LedgerRow, is_expected: bool) {
        let is_ours = row.tz_version == self.question.zones.version();
        if !is_expected && self.question.asks_about(row.scheduled_at) {
            if is_ours { &mut self.proof.unexpected } else { &mut self.foreign }.add(row.scheduled_at);
        }
        match row.reason {
            None if is_expected => {
                let lag = row.fired_at - row.scheduled_at;
                self.proof.fired += 1;
                self.proof.late += u64::from(lag > LATE_AFTER);
                self.proof.max_lag = self.proof.max_lag.max(lag);
            }
            None => {}
            Some(reason) => {
                self.close_run();
                if is_expected {
                    *self.proof.skipped.entry(reason.as_str()).or_default() += 1;
                }
                let until = row.until.unwrap_or(row.scheduled_at);
                let covered = u64::from(is_expected);
                self.run = Some(Run { at: row.scheduled_at, until, reason, count: row.count, covered, is_ours });
            }
        }
    }

    /// Accounts for the expected instants before `at`, or for all that are left; whether `most` were enough.
    fn pass_over(&mut self, at: Option<DateTime<Utc>>, most: usize) -> bool {
        for _ in 0..most {
            if self.expected.peek().is_none_or(|next| at.is_some_and(|at| next >= at)) {
                return true;
            }
            let Some((next, stretch)) = self.expected.take() else { return true };
            self.proof.expected += 1;
            match &mut self.run {
                Some(run) if next <= run.until => {
                    run.covered += 1;
                    *self.proof.skipped.entry(run.reason.as_str()).or_default() += 1;
                }
                _ => absent(&self.question, &mut self.proof, &mut self.undecided, next, stretch),
            }
        }
        false
    }

    /// Checks that a run that lies in what is asked about counts as many instants as there were.
    fn close_run(&mut self) {
        let Some(run) = self.run.take() else { return };
        let is_asked_about = self.question.asks_about(run.at) && self.question.asks_about(run.until);
        if is_asked_about && run.is_ours && run.covered > run.count {
            self.proof.miscounted.add(run.at);
        }
    }
}

impl Question<'_> {
    fn asks_about(&self, at: DateTime<Utc>) -> bool {
        (self.from..self.to).contains(&at)
    }
}

/// Accounts for an expected instant that the ledger says nothing about.
fn absent(question: &Question<'_>, proof: &mut Proof, undecided: &mut Listed, at: DateTime<Utc>, stretch: &Stretch) {
    if question.pruned_before.is_some_and(|before| at < before) {
        proof.pruned += 1;
        return;
    }
    let ended_at = stretch.ended_at.unwrap_or(question.now);
    let is_fresh = ended_at - at <= question.misfire_threshold;
    match stretch.decided_through {
        Decided::Through(decided) if at <= decided => proof.missing.add(at),
        Decided::Through(_) if is_fresh && stretch.ended_at.is_some() => proof.overtaken += 1,
        Decided::Through(_) if is_fresh => proof.pending += 1,
        Decided::AsFarAsSeen if is_fresh => undecided.add(at),
        Decided::OrDone => undecided.add(at),
        Decided::Through(_) | Decided::AsFarAsSeen => proof.missing.add(at),
    }
}
