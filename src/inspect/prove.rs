//! Did everything fire that should have, once? Answered from each schedule's own history and the ledger of its fires.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use punctual_domain::id::ScheduleId;
use punctual_domain::proof::{Listed, Proof, Prover, Question};
use punctual_domain::schedule::Schedule;
use punctual_domain::store::Span;
use serde::{Deserialize, Serialize};

use super::{InspectError, Inspector, Moment};

/// How many rows of the ledger are read at once.
const PAGE: u32 = 2_000;
/// How many schedules are read at once.
const SCHEDULES: u32 = 500;
/// How many instants are walked before somebody else may go on.
const WALK: usize = 5_000;
/// How many instants of one kind are listed for one schedule, and for all of them; the rest are counted.
const LISTED: usize = 1_000;
const LISTED_IN_ALL: usize = 100_000;
/// How many instants with several tasks are looked at.
const SEVERAL: u32 = 10_000;

/// What was proven.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Report {
    pub(crate) from: Moment,
    pub(crate) to: Moment,
    /// Whether nothing is missing, double or unexpected anywhere.
    pub(crate) holds: bool,
    /// When it was asked; what is due later is not looked at.
    pub(crate) now: Moment,
    /// The zone data that was computed with.
    pub(crate) tz_version: String,
    /// Fires from before this instant may have been removed.
    pub(crate) pruned_before: Option<Moment>,
    pub(crate) schedules: Vec<OfSchedule>,
}

/// What was proven about one schedule.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct OfSchedule {
    pub(crate) id: ScheduleId,
    pub(crate) name: String,
    pub(crate) timezone: String,
    pub(crate) holds: bool,
    pub(crate) expected: u64,
    pub(crate) fired: u64,
    pub(crate) skipped: u64,
    pub(crate) skipped_by: BTreeMap<String, u64>,
    pub(crate) missing: Vec<Moment>,
    pub(crate) missing_count: u64,
    pub(crate) double: Vec<Moment>,
    pub(crate) double_count: u64,
    pub(crate) unexpected: Vec<Moment>,
    pub(crate) unexpected_count: u64,
    pub(crate) miscounted: Vec<Moment>,
    pub(crate) late: u64,
    pub(crate) max_lag_ms: i64,
    pub(crate) pending: u64,
    pub(crate) overtaken: u64,
    pub(crate) filled: u64,
    pub(crate) moved: Vec<Move>,
    pub(crate) moved_count: u64,
    pub(crate) pruned: u64,
    pub(crate) manual: u64,
    pub(crate) backfilled: u64,
    /// The first version in its history, if that lies in the stretch.
    pub(crate) created_at: Option<Moment>,
    pub(crate) deleted_at: Option<Moment>,
    pub(crate) pauses: Vec<Pause>,
    /// Why nothing can be proven, where a definition cannot be understood.
    pub(crate) error: Option<String>,
}

/// An instant that other zone data placed elsewhere.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Move {
    /// As the ledger has it.
    pub(crate) was: Moment,
    /// As it would be now.
    pub(crate) is: Moment,
}

/// A stretch in which nothing was due.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Pause {
    pub(crate) from: Moment,
    /// When it was resumed, if that lies in the stretch.
    pub(crate) to: Option<Moment>,
    pub(crate) note: Option<String>,
}

impl Inspector {
    /// Proves what happened from `from` on and before `to`, of one schedule or of all that were there.
    pub(crate) async fn prove(
        &self,
        schedule: Option<&str>,
        from: DateTime<Utc>,
        to: DateTime<Utc>,
    ) -> Result<Report, InspectError> {
        if from >= to {
            return Err(InspectError::refused("from", "must be before to"));
        }
        let now = self.store.now().await?;
        let asked = Asked { from, to: to.min(now), now };
        let mut schedules = Vec::new();
        let mut room = LISTED_IN_ALL;
        if let Some(schedule) = schedule {
            let id = self.find_schedule(schedule).await?;
            schedules.extend(self.prove_one(id, asked, Wanted::Always, &mut room).await?);
        } else {
            let mut after = None;
            loop {
                let ids = self.store.schedules_ever(after, SCHEDULES).await?;
                for id in &ids {
                    self.tell(&format!("{} schedules proven", schedules.len()));
                    schedules.extend(self.prove_one(*id, asked, Wanted::IfThere, &mut room).await?);
                }
                after = ids.last().copied();
                if ids.len() < SCHEDULES as usize {
                    break;
                }
            }
        }
        schedules.sort_by(|a, b| a.name.cmp(&b.name).then(a.id.cmp(&b.id)));
        Ok(Report {
            from: Moment(from),
            to: Moment(to),
            holds: schedules.iter().all(|schedule| schedule.holds),
            now: Moment(now),
            tz_version: self.zones.version().to_owned(),
            pruned_before: self.store.fires_pruned_before().await?.map(Moment),
            schedules,
        })
    }

    async fn prove_one(
        &self,
        id: ScheduleId,
        asked: Asked,
        wanted: Wanted,
        room: &mut usize,
    ) -> Result<Option<OfSchedule>, InspectError> {
        loop {
            let pruned_before = self.store.fires_pruned_before().await?;
            // Before the ledger: what it says is decided must be found there.
            let current = self.store.schedule(id).await?;
            let mut history = self.store.schedule_history(id).await?;
            history.reverse();
            let Some(last) = history.iter().rev().find_map(|(_, schedule)| schedule.as_ref()) else { return Ok(None) };
            if wanted == Wanted::IfThere && !was_there(&history, asked) {
                return Ok(None);
            }
            let (name, timezone) = (last.definition.name.clone(), last.definition.timezone.clone());
            let span = Span { from: Some(asked.from), to: Some(asked.to) };
            let several_tasks = self.store.several_tasks(id, span, SEVERAL).await?;
            let prover = Prover::new(Question {
                history: &history,
                current: current.as_ref(),
                from: asked.from,
                to: asked.to,
                now: asked.now,
                pruned_before,
                misfire_threshold: self.misfire_threshold,
                zones: &self.zones,
                several_tasks: &several_tasks,
            });
            let (proof, error) = match prover {
                Ok(prover) => (self.walk(id, span, prover, &name).await?, None),
                Err(error) => (Proof::default(), Some(error.to_string())),
            };
            // Retention may have come by meanwhile: then what looks missing may just be gone.
            if !proof.missing.is_empty() && self.store.fires_pruned_before().await? != pruned_before {
                continue;
            }
            return Ok(Some(OfSchedule::new(id, name, timezone, proof, error, &history, asked, room)));
        }
    }

    async fn walk(
        &self,
        id: ScheduleId,
        span: Span,
        mut prover: Prover<'_>,
        name: &str,
    ) -> Result<Proof, InspectError> {
        let (mut after, mut rows) = (None, 0);
        loop {
            let page = self.store.ledger(id, span, after, PAGE).await?;
            let is_last = page.len() < PAGE as usize;
            rows += page.len();
            for row in page {
                after = Some((row.scheduled_at, row.kind));
                while !prover.walk(Some(row.scheduled_at), WALK) {
                    tokio::task::yield_now().await;
                }
                prover.observe(row);
            }
            if is_last {
                break;
            }
            self.tell(&format!("{name}: {rows} fires read"));
        }
        while !prover.walk(None, WALK) {
            tokio::task::yield_now().await;
        }
        Ok(prover.finish())
    }
}

#[derive(Clone, Copy)]
struct Asked {
    from: DateTime<Utc>,
    to: DateTime<Utc>,
    now: DateTime<Utc>,
}

/// Whether a schedule is told about.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Wanted {
    /// Somebody named it.
    Always,
    /// If it was there at all.
    IfThere,
}

type History = [(DateTime<Utc>, Option<Schedule>)];

fn was_there(history: &History, asked: Asked) -> bool {
    let began = history.first().is_some_and(|(since, _)| *since < asked.to);
    let ended = history.last().is_some_and(|(since, schedule)| schedule.is_none() && *since < asked.from);
    began && !ended
}

impl OfSchedule {
    #[expect(clippy::too_many_arguments, reason = "the parts of an answer, put together in one place")]
    fn new(
        id: ScheduleId,
        name: String,
        timezone: String,
        proof: Proof,
        error: Option<String>,
        history: &History,
        asked: Asked,
        room: &mut usize,
    ) -> Self {
        let mut list = |listed: &Listed| -> Vec<Moment> {
            let count = listed.first.len().min(LISTED).min(*room);
            *room -= count;
            listed.first[..count].iter().copied().map(Moment).collect()
        };
        let within = |at: &DateTime<Utc>| (asked.from..asked.to).contains(at);
        Self {
            id,
            name,
            timezone,
            holds: proof.holds() && error.is_none(),
            expected: proof.expected,
            fired: proof.fired,
            skipped: proof.skipped_in_all(),
            missing: list(&proof.missing),
            missing_count: proof.missing.count,
            double: list(&proof.double),
            double_count: proof.double.count,
            unexpected: list(&proof.unexpected),
            unexpected_count: proof.unexpected.count,
            miscounted: list(&proof.miscounted),
            skipped_by: proof.skipped.iter().map(|(reason, count)| ((*reason).to_owned(), *count)).collect(),
            late: proof.late,
            max_lag_ms: proof.max_lag.num_milliseconds(),
            pending: proof.pending,
            overtaken: proof.overtaken,
            filled: proof.filled,
            moved_count: proof.moved.len() as u64,
            moved: proof
                .moved
                .iter()
                .take(LISTED)
                .map(|(is, was)| Move { was: Moment(*was), is: Moment(*is) })
                .collect(),
            pruned: proof.pruned,
            manual: proof.manual,
            backfilled: proof.backfilled,
            created_at: history.first().map(|(since, _)| *since).filter(within).map(Moment),
            deleted_at: history.iter().find(|(_, was)| was.is_none()).map(|(at, _)| *at).filter(within).map(Moment),
            pauses: pauses(history, asked),
            error,
        }
    }
}

/// The stretches in which it was paused, cut to what is asked about.
fn pauses(history: &History, asked: Asked) -> Vec<Pause> {
    let mut pauses: Vec<Pause> = Vec::new();
    for (i, (since, schedule)) in history.iter().enumerate() {
        let Some(schedule) = schedule.as_ref().filter(|schedule| !schedule.enabled) else { continue };
        let ended_at = history.get(i + 1).map(|(at, _)| *at);
        let to = [ended_at, schedule.paused_until].into_iter().flatten().min();
        if *since >= asked.to || to.is_some_and(|to| to <= asked.from) {
            continue;
        }
        let from = Moment((*since).max(asked.from));
        let to = to.filter(|to| *to < asked.to).map(Moment);
        match pauses.last_mut() {
            // An edit in the middle of a pause does not end it.
            Some(last) if last.to == Some(from) => last.to = to,
            _ => pauses.push(Pause { from, to, note: schedule.pause_note.clone() }),
        }
    }
    pauses
}
