//! Attending: what ended behind a queue's back is looked after, and jobs that nobody waits for are removed.

use std::collections::BTreeMap;
use std::iter;

use punctual_domain::hand_over::{HandOver, Queue};
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::store::{TaskWithAttempts, WhichHandOvers};
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::{Route, TopicDefinition};
use tokio::time::sleep;
use tracing::debug;

use super::super::job::Job;
use super::super::redis::{Found, Removed};
use super::super::remove_jobs_of;
use super::record::Heard;
use super::{AFTER_ERROR, PAGE, Parts, Work};
use crate::redis::{NotNow, is_refusal};

impl Work {
    /// Looks after what was asked for, for good.
    pub(super) async fn attend(&self) {
        loop {
            self.0.attention.rung.notified().await;
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
            let mut cancelled = cancelled.into_iter();
            while let Some(id) = cancelled.next() {
                match self.clear_away(id).await {
                    Ok(()) => {}
                    Err(error) if error.is_refusal() => {
                        debug!(task_id = %id, %error, "the job of a task that ended is left to the next look");
                    }
                    Err(error) => {
                        debug!(task_id = %id, %error, "jobs of tasks that ended are not removed yet");
                        // The next look does not know of a job whose hand-over was never noted.
                        sleep(AFTER_ERROR).await;
                        iter::once(id).chain(cancelled.by_ref()).for_each(|id| self.0.attention.cancelled(id));
                    }
                }
            }
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

    /// Removes the job of a task that has ended otherwise, if it has not begun.
    async fn clear_away(&self, id: TaskId) -> Result<(), NotNow> {
        let known = self.0.store.hand_overs(&WhichHandOvers::OfTask(id), 1).await?;
        if known.is_empty() {
            return self.clear_unnoted(id).await;
        }
        self.clear(known.into_iter().filter(|hand_over| hand_over.task.is_none()).collect()).await
    }

    /// The same for one that a node may have handed over, and crashed before it noted that.
    async fn clear_unnoted(&self, id: TaskId) -> Result<(), NotNow> {
        let Parts { store, queues, topics, .. } = &self.0;
        let definitions = topics.definitions().await?;
        if !definitions.iter().any(|definition| matches!(definition.route, Route::Bullmq { .. })) {
            return Ok(());
        }
        let Some(TaskWithAttempts { task, .. }) = store.task(id).await? else { return Ok(()) };
        let was_claimed = task.epoch > Epoch(0);
        let route = TopicDefinition::for_topic(&definitions, &task.topic).map(|definition| &definition.route);
        match route {
            Some(Route::Bullmq { queue, prefix }) if was_claimed && task.status == TaskStatus::Cancelled => {
                let queue = Queue { prefix: prefix.clone(), name: queue.clone() };
                let execution = store.execution_of(&task).await?;
                remove_jobs_of(queues, &queue, &task, execution).await
            }
            _ => Ok(()),
        }
    }

    /// The same for all whose ends nobody has looked after.
    pub(super) async fn clear_strays(&self) -> Result<(), NotNow> {
        let mut after = None;
        loop {
            let strays = self.0.store.hand_overs(&WhichHandOvers::Stray(after), PAGE).await?;
            let Some(last) = strays.last() else { return Ok(()) };
            after = Some(last.task_id);
            self.clear(strays).await?;
        }
    }

    /// Removes jobs that nobody waits for. What a worker has stays known: it may come back to be tried again.
    async fn clear(&self, strays: Vec<HandOver>) -> Result<(), NotNow> {
        let mut over = Vec::with_capacity(strays.len());
        for HandOver { task_id, queue, job_id, .. } in &strays {
            match self.0.queues.remove(queue, job_id).await {
                Ok(Removed::IsRunning) => continue,
                Ok(Removed::Now) => debug!(%task_id, %queue, job_id, "job of an ended task removed"),
                Ok(Removed::Over) => {}
                // Others are in queues that are well.
                Err(error) if is_refusal(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            over.push(*task_id);
        }
        Ok(self.0.store.forget_hand_overs(&over).await?)
    }
}
