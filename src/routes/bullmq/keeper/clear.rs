//! Attending: what ended behind a queue's back is looked after, and jobs that nobody waits for are removed.

use std::collections::BTreeMap;

use punctual_domain::hand_over::{HandOver, Queue};
use punctual_domain::id::TaskId;
use punctual_domain::store::{TaskWithAttempts, WhichHandOvers};
use tokio::time::{MissedTickBehavior, interval, sleep};
use tracing::debug;

use super::super::job::Job;
use super::super::redis::{Found, Removed};
use super::super::remove_jobs_of;
use super::record::Heard;
use super::{AFTER_ERROR, PAGE, Parts, Work};
use crate::redis::{NotNow, PATIENCE as ANSWER};

impl Work {
    /// Looks after what was asked for, and each round after what was cancelled and nobody told of, for good.
    pub(super) async fn attend(&self) {
        let mut rounds = interval(self.0.every);
        rounds.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut is_behind = false;
        loop {
            let is_round = tokio::select! {
                () = self.0.attention.rung.notified() => false,
                // A worker may be faster than the next look at all jobs.
                () = sleep(AFTER_ERROR), if is_behind => false,
                _ = rounds.tick() => true,
            };
            let (jobs, cancelled) = self.0.attention.take();
            let mut by_queue: BTreeMap<Queue, Vec<String>> = BTreeMap::new();
            for (queue, job) in jobs {
                by_queue.entry(queue).or_default().push(job);
            }
            // What is not done now, healing finds.
            for (queue, jobs) in by_queue {
                let (jobs, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|id| Job::is_of_task(id));
                if let Err(error) = self.forget_ended(&queue, others).await {
                    debug!(%queue, %error, "messages that have ended are left to the next look");
                }
                let jobs = jobs.into_iter().map(|id| (id, Heard::default())).collect();
                if let Err(error) = self.record(&queue, jobs).await {
                    debug!(%queue, %error, "jobs that have ended are left to the next look");
                }
            }
            let cleared = match is_behind {
                true => self.clear_strays(WhichHandOvers::Stray).await,
                false => match self.clear_away(&cancelled).await {
                    Ok(()) if is_round => self.clear_strays(WhichHandOvers::OverdueStray).await,
                    cleared => cleared,
                },
            };
            if let Err(error) = &cleared {
                debug!(%error, "jobs of tasks that ended are not removed yet");
            }
            is_behind = cleared.is_err_and(|error| !error.is_refusal());
        }
    }

    /// Forgets messages whose jobs have ended.
    async fn forget_ended(&self, queue: &Queue, jobs: Vec<String>) -> Result<(), NotNow> {
        let ids: Vec<_> = jobs.iter().map(String::as_str).collect();
        let found = self.0.queues.look_up(queue, &ids).await?;
        let has_ended = |found: Option<Found>| found.is_some_and(|found| found.end.is_some());
        let jobs = jobs.iter().zip(found).filter(|(_, found)| has_ended(found.clone()));
        let over: Vec<_> = jobs.map(|(id, _)| id.clone()).collect();
        match over.is_empty() {
            true => Ok(()),
            false => Ok(self.0.store.forget_message_jobs(queue, &over).await?),
        }
    }

    /// Removes the jobs of tasks that have ended otherwise, where they have not begun.
    async fn clear_away(&self, ended: &[TaskId]) -> Result<(), NotNow> {
        for id in ended {
            let known = self.0.store.hand_overs(&WhichHandOvers::OfTask(*id), 1).await?;
            self.clear(known.into_iter().filter(|hand_over| hand_over.task.is_none()).collect()).await?;
        }
        Ok(())
    }

    /// The same for strays that nobody has looked after: those after a task are asked for by `which`.
    pub(super) async fn clear_strays(&self, which: fn(Option<TaskId>) -> WhichHandOvers) -> Result<(), NotNow> {
        let mut after = None;
        loop {
            let strays = self.0.store.hand_overs(&which(after), PAGE).await?;
            let Some(last) = strays.last() else { return Ok(()) };
            after = Some(last.task_id);
            self.clear(strays).await?;
        }
    }

    /// Removes jobs that nobody waits for. What a worker has stays known: it may come back to be tried again.
    async fn clear(&self, strays: Vec<HandOver>) -> Result<(), NotNow> {
        let mut over = Vec::with_capacity(strays.len());
        for stray in &strays {
            let HandOver { task_id, queue, job_id, .. } = stray;
            match self.remove(stray).await {
                Ok(Removed::IsRunning) => continue,
                Ok(Removed::Now) => debug!(%task_id, %queue, job_id, "job of an ended task removed"),
                // Whoever may have sent it could still be answered: the next round looks again.
                Ok(Removed::Over) if self.may_be_under_way(stray) => continue,
                Ok(Removed::Over) => {}
                // Others are in queues that are well.
                Err(error) if error.is_refusal() => continue,
                Err(error) => return Err(error),
            }
            over.push(*task_id);
        }
        Ok(self.0.store.forget_hand_overs(&over).await?)
    }

    /// Whether a job that nobody noted may be made yet. Redis makes none that was sent longer ago.
    fn may_be_under_way(&self, stray: &HandOver) -> bool {
        !stray.is_certain() && (self.0.time.now() - stray.handed_over_at).to_std().is_ok_and(|ago| ago < 2 * ANSWER)
    }

    /// Removes the job of a task that has ended, if it waits.
    async fn remove(&self, stray: &HandOver) -> Result<Removed, NotNow> {
        let Parts { store, queues, .. } = &self.0;
        if stray.is_certain() {
            return Ok(queues.remove(&stray.queue, &stray.job_id).await?);
        }
        let Some(TaskWithAttempts { task, .. }) = store.task(stray.task_id).await? else { return Ok(Removed::Over) };
        let execution = store.execution_of(task.id, task.fire).await?;
        remove_jobs_of(queues, &stray.queue, &task, execution).await
    }
}
