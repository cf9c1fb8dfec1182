//! Recording: tasks are brought to where their jobs are, attempt by attempt, and settled when those have ended.

use std::collections::{HashMap, HashSet};

use punctual_actors::Origin;
use punctual_domain::hand_over::{HandOver, HandedOver, Mirrored, Queue, Step};
use punctual_domain::id::Epoch;
use punctual_domain::json::Json;
use punctual_domain::store::{Settled, Settling, WhichHandOvers};
use punctual_domain::task::{MAX_RESULT_BYTES, Settlement, TaskStatus};
use tracing::warn;

use super::super::redis::{Found, JobEnd, Told};
use super::{Parts, Work};
use crate::redis::NotNow;

/// What was heard of a job: how it ended, and what became of its tries before.
#[derive(Default)]
pub(super) struct Heard {
    pub(super) end: Option<JobEnd>,
    pub(super) tries: Vec<Told>,
}

impl Work {
    /// Brings tasks to where their jobs are; what was heard about a job's end counts if it is gone.
    pub(super) async fn record(&self, queue: &Queue, jobs: Vec<(String, Heard)>) -> Result<(), NotNow> {
        let Parts { store, queues, attention, .. } = &self.0;
        let said: HashMap<_, _> = jobs.into_iter().collect();
        let which = WhichHandOvers::OfJobs(queue.clone(), said.keys().cloned().collect());
        let mut held = store.hand_overs(&which, u32::MAX).await?;
        let known: HashSet<_> = held.iter().map(|hand_over| hand_over.job_id.as_str()).collect();
        // One that is not wanted any more, and whose worker has given it back, is removed before it is tried again.
        let given_back = said.iter().filter(|(id, heard)| !known.contains(id.as_str()) && !heard.tries.is_empty());
        let given_back: Vec<_> = given_back.map(|(id, _)| id.clone()).collect();
        if !given_back.is_empty() {
            let strays = WhichHandOvers::StrayOfJobs(queue.clone(), given_back);
            let strays = store.hand_overs(&strays, u32::MAX).await?;
            strays.iter().for_each(|stray| attention.cancelled(stray.task_id));
        }
        if held.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = held.iter().map(|hand_over| hand_over.job_id.as_str()).collect();
        let found = queues.look_up(queue, &ids).await?;
        let found: HashMap<_, _> = held.iter().map(|hand_over| hand_over.job_id.clone()).zip(found).collect();
        let mut rounds: Vec<Vec<Mirrored>> = Vec::new();
        for hand_over in &held {
            let Some(found) = &found[&hand_over.job_id] else { continue };
            for (nth, step) in
                self.steps(hand_over, found, &said[&hand_over.job_id].tries).await?.into_iter().enumerate()
            {
                if rounds.len() == nth {
                    rounds.push(Vec::new());
                }
                rounds[nth].push(step);
            }
        }
        for round in &rounds {
            store.mirror(round).await?;
        }
        if !rounds.is_empty() {
            // Some have another epoch now.
            held = store.hand_overs(&which, u32::MAX).await?;
        }
        let settlements = held.into_iter().filter_map(|hand_over| {
            let end = match found.get(&hand_over.job_id) {
                Some(Some(found)) => found.end.clone(),
                _ => said.get(&hand_over.job_id).and_then(|heard| heard.end.clone()),
            };
            let settlement = settlement(&hand_over, end?);
            Some((hand_over, settlement))
        });
        self.settle(settlements.collect()).await?;
        Ok(())
    }

    /// What a task has to go through to come to where its job is.
    async fn steps(&self, hand_over: &HandOver, found: &Found, tries: &[Told]) -> Result<Vec<Mirrored>, NotNow> {
        let Some(task) = &hand_over.task else { return Ok(Vec::new()) };
        let strides = strides(task, hand_over.first_attempt, found, tries);
        let all = found.failures + u32::from(matches!(found.end, Some(JobEnd::Failed(_))));
        // The job tells why it failed last; of failures before there are the traces.
        let is_older =
            |stride: &Stride| matches!(stride, Stride::Failed(nth) if nth + 1 != all || found.error.is_none());
        let traces = match strides.iter().any(is_older) {
            true => self.0.queues.errors(&hand_over.queue, &hand_over.job_id).await?,
            false => Vec::new(),
        };
        let error = |nth: u32| {
            let behind = all.saturating_sub(nth) as usize;
            let said = match (behind, &found.error) {
                (1, Some(error)) => Some(error),
                _ => traces.len().checked_sub(behind).and_then(|at| traces.get(at)),
            };
            reason(said.cloned().unwrap_or_default())
        };
        let mut epoch = hand_over.epoch;
        let steps = strides.into_iter().map(|stride| {
            let (task_id, before) = (hand_over.task_id, epoch);
            let step = match stride {
                Stride::Began => Step::Began,
                Stride::Failed(nth) => {
                    epoch = Epoch(epoch.0 + 1);
                    Step::Failed { error: error(nth) }
                }
            };
            Mirrored { task_id, epoch: before, step }
        });
        Ok(steps.collect())
    }

    /// Settles tasks and forgets their hand-overs; answers those that were settled now.
    pub(super) async fn settle(&self, ended: Vec<(HandOver, Settlement)>) -> Result<Vec<HandOver>, NotNow> {
        let Parts { store, topics, time, wake, .. } = &self.0;
        if ended.is_empty() {
            return Ok(Vec::new());
        }
        let settlings = ended.iter().map(|(hand_over, settlement)| Settling {
            task_id: hand_over.task_id,
            epoch: hand_over.epoch,
            settlement: settlement.clone(),
        });
        let answers = store.settle(settlings.collect()).await?;
        let (mut settled, mut unblocks) = (Vec::new(), false);
        for ((hand_over, settlement), answer) in ended.into_iter().zip(answers) {
            if let (Settled::Now, Some(task)) = (answer, &hand_over.task) {
                let meters = topics.meters(&task.topic).await;
                meters.took((time.now() - task.started_at).to_std().unwrap_or_default(), task.timeout_seconds);
                let origin = if task.is_of_schedule { Origin::Schedule } else { Origin::Task };
                meters.ended(settlement.status(), origin, 1);
                if settlement.status() == TaskStatus::Failed {
                    warn!(task_id = %hand_over.task_id, outcome = settlement.outcome().as_str(), "task failed");
                }
                unblocks |= task.has_serial_key;
                settled.push(hand_over);
            }
        }
        wake.tasks_ended(unblocks);
        // The job of one whose time is up has still to be looked after.
        let is_done = |hand_over: &&HandOver| hand_over.ends_at > time.now();
        let done: Vec<_> = settled.iter().filter(is_done).map(|hand_over| hand_over.task_id).collect();
        store.forget_hand_overs(&done).await?;
        Ok(settled)
    }
}

/// A step of a task in its queue.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Stride {
    /// The job's failure of that number, from 0.
    Failed(u32),
    Began,
}

/// How a task comes to where its job is found, after these tries were heard of; none where all was looked up.
///
/// How many have failed is the job's to say. Where more tries went back than that, the others were put off: the earlier ones,
/// for want of knowing. What the job counts already and nobody has heard of yet is left to be heard.
pub(super) fn strides(task: &HandedOver, first_attempt: u32, found: &Found, tries: &[Told]) -> Vec<Stride> {
    let mut strides = Vec::new();
    let mut rests = task.rests;
    let mut known = task.attempt.saturating_sub(first_attempt) + u32::from(rests);
    let mut fail = |strides: &mut Vec<Stride>, rests: &mut bool| {
        if *rests {
            strides.push(Stride::Began);
        }
        strides.push(Stride::Failed(known));
        *rests = true;
        known += 1;
    };
    let mut missing = found.failures.saturating_sub(task.attempt.saturating_sub(first_attempt) + u32::from(rests));
    let mut back = tries.iter().filter(|told| **told == Told::WentBack).count() as u32;
    for told in tries {
        match told {
            Told::WentBack => {
                if missing > 0 && missing >= back {
                    fail(&mut strides, &mut rests);
                    missing -= 1;
                }
                back -= 1;
            }
            Told::Began if rests => {
                strides.push(Stride::Began);
                rests = false;
            }
            _ => {}
        }
    }
    let has_ended = found.end.is_some();
    if has_ended || tries.is_empty() {
        for _ in 0..missing {
            fail(&mut strides, &mut rests);
        }
    }
    if rests && (has_ended || (tries.is_empty() && found.is_running)) {
        strides.push(Stride::Began);
    }
    strides
}

/// Why a try failed, in no more words than are kept.
fn reason(error: String) -> String {
    match error.is_empty() {
        true => "the job failed without a reason".into(),
        false => Settlement::failed(error).error().unwrap_or_default().to_owned(),
    }
}

/// What a job's end means for its task.
fn settlement(hand_over: &HandOver, end: JobEnd) -> Settlement {
    match end {
        JobEnd::Failed(error) => Settlement::failed(reason(error)),
        JobEnd::Completed(returned) => {
            let returned = returned.filter(|returned| !["", "null"].contains(&returned.as_str()));
            let result = returned.and_then(|returned| {
                let fits = returned.len() <= MAX_RESULT_BYTES;
                let result = if fits { Json::parse(returned).ok() } else { None };
                if result.is_none() {
                    warn!(task_id = %hand_over.task_id, "what the job returned is too long or no JSON, and not kept");
                }
                result
            });
            Settlement::Completed { result }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_task_comes_to_where_its_job_is() {
        use Stride::{Began as B, Failed as F};
        use Told::{Began, WentBack};
        let handed = |attempt, rests| HandedOver {
            topic: "mail".parse().unwrap(),
            attempt,
            started_at: "2026-11-16T12:00:00Z".parse().unwrap(),
            timeout_seconds: 60,
            rests,
            is_of_schedule: false,
            has_serial_key: false,
        };
        let runs = |failures| Found { failures, is_running: true, ..Found::default() };
        let waits = |failures| Found { failures, ..Found::default() };
        let ended = |failures| Found { failures, end: Some(JobEnd::Completed(None)), ..Found::default() };
        for (attempt, rests, found, tries, expected) in [
            // As it is heard.
            (1, false, waits(1), vec![WentBack], vec![F(0)]),
            (1, true, runs(1), vec![Began], vec![B]),
            (2, false, waits(2), vec![WentBack], vec![F(1)]),
            (1, false, runs(1), vec![WentBack, Began], vec![F(0), B]),
            // The job is further than what was heard; the rest will be.
            (1, false, waits(2), vec![WentBack], vec![F(0)]),
            (1, false, waits(2), vec![WentBack, Began, WentBack], vec![F(0), B, F(1)]),
            // Put off.
            (1, false, waits(0), vec![WentBack], vec![]),
            (1, false, runs(0), vec![WentBack, Began], vec![]),
            (1, false, waits(1), vec![WentBack, Began, WentBack], vec![F(0)]),
            // Heard again.
            (2, false, runs(1), vec![WentBack, Began], vec![]),
            // What was not heard, the job's end and a look at all jobs make up for.
            (1, false, ended(2), vec![], vec![F(0), B, F(1), B]),
            (1, false, ended(1), vec![WentBack], vec![F(0), B]),
            (1, true, ended(1), vec![], vec![B]),
            (1, false, runs(1), vec![], vec![F(0), B]),
            (1, false, waits(1), vec![], vec![F(0)]),
            (1, true, waits(1), vec![], vec![]),
            (1, false, ended(0), vec![], vec![]),
        ] {
            assert_eq!(
                strides(&handed(attempt, rests), 1, &found, &tries),
                expected,
                "{attempt} {rests} {found:?} {tries:?}"
            );
        }
        // A job that was made anew counts from the attempt that it began with.
        assert_eq!(strides(&handed(3, false), 3, &waits(1), &[WentBack]), [F(0)]);
    }
}
