//! Healing: every job of a queue is looked up, and what is missing is handed over again.

use std::collections::HashSet;
use std::time::Duration;

use punctual_domain::hand_over::{HandOver, MessageJob, Mirrored, Queue, Step};
use punctual_domain::outbox::{Message, MessageStatus};
use punctual_domain::store::{Extension, WhichHandOvers};
use punctual_domain::task::TaskStatus;
use tokio::time::Instant;
use tracing::{debug, info};

use super::super::job::Job;
use super::follow::Followed;
use super::record::{Heard, strides};
use super::{PAGE, Parts, Work};
use crate::delivery::queue::job_of;
use crate::redis::NotNow;

/// How often the log is told of looks that found jobs and nothing to heal.
const TELL_EVERY: Duration = Duration::from_secs(5 * 60);

/// What a look at all jobs of a queue found.
#[derive(Default)]
struct Healed {
    scanned: u64,
    healed: u64,
    skipped: u64,
}

impl Work {
    /// Reads a queue's events to their end, and looks up all of its jobs.
    pub(super) async fn look_at_all(&self, queue: &Queue, followed: &mut Followed) -> Result<(), NotNow> {
        // Events from here on are read: what is looked up now is no older.
        if self.0.queues.has_gap(queue, &followed.position).await? {
            followed.position.clear();
        }
        self.catch_up(queue, followed).await?;
        let Healed { scanned, healed, skipped } = self.heal(queue, followed).await?;
        followed.seen_until = self.0.queues.its_time().await?.unsigned_abs();
        if is_news(scanned, healed, followed.told_at.map(|at| at.elapsed())) {
            followed.told_at = Some(Instant::now());
            info!(%queue, scanned, healed, skipped, "hand-overs reconciled");
        } else {
            debug!(%queue, scanned, healed, skipped, "hand-overs reconciled");
        }
        Ok(())
    }

    /// Looks up every job of a queue: what has ended is settled, what is missing is handed over again.
    async fn heal(&self, queue: &Queue, followed: &mut Followed) -> Result<Healed, NotNow> {
        let Parts { store, queues, .. } = &self.0;
        let mut healed = Healed::default();
        let mut after = None;
        loop {
            let page = store.hand_overs(&WhichHandOvers::OfQueue(queue.clone(), after), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.task_id);
            let ids: Vec<_> = page.iter().map(|hand_over| hand_over.job_id.as_str()).collect();
            let found = queues.look_up(queue, &ids).await?;
            let (mut moved, mut missing) = (Vec::new(), Vec::new());
            healed.scanned += page.len() as u64;
            for (hand_over, found) in page.into_iter().zip(found) {
                let Some(task) = &hand_over.task else { continue };
                if task.rests {
                    followed.note_retried(&hand_over.job_id);
                }
                match found {
                    None => missing.push(hand_over.job_id),
                    Some(found)
                        if found.end.is_some() || !strides(task, hand_over.first_attempt, &found, &[]).is_empty() =>
                    {
                        followed.note_retried(&hand_over.job_id);
                        moved.push((hand_over.job_id, Heard::default()));
                    }
                    Some(_) => healed.skipped += 1,
                }
            }
            healed.healed += moved.len() as u64;
            self.record(queue, moved).await?;
            if !missing.is_empty() {
                // The end of one that is gone may stand in events that nobody has read.
                self.catch_up(queue, followed).await?;
                healed.healed += self.hand_over_again(queue, missing).await?;
            }
        }
        self.heal_messages(queue, followed, &mut healed).await?;
        self.clear_strays(WhichHandOvers::Stray).await?;
        metrics::counter!("punctual_hand_overs_total", "result" => "healed").increment(healed.healed);
        Ok(healed)
    }

    /// The same for messages: what has ended is forgotten, what is missing is given to the queue again.
    async fn heal_messages(&self, queue: &Queue, followed: &mut Followed, healed: &mut Healed) -> Result<(), NotNow> {
        let is_wanted = |message: &Message| message.status != MessageStatus::Failed;
        let Parts { store, queues, .. } = &self.0;
        let mut after = None;
        loop {
            let page = store.message_jobs(queue, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            let before = after.replace(last.message_id);
            let ids: Vec<_> = page.iter().map(|job| job.job_id.as_str()).collect();
            let found = queues.look_up(queue, &ids).await?;
            healed.scanned += page.len() as u64;
            let mut over = Vec::new();
            let mut wanted: HashSet<_> = page.iter().map(|job| job.message_id).collect();
            if found.iter().any(Option::is_none) {
                // As with tasks, they may have ended.
                self.catch_up(queue, followed).await?;
                wanted = store.message_jobs(queue, before, PAGE).await?.iter().map(|job| job.message_id).collect();
            }
            for (MessageJob { message_id, job_id }, found) in page.into_iter().zip(found) {
                if !wanted.contains(&message_id) {
                    continue;
                }
                match found {
                    Some(found) if found.end.is_some() => over.push(job_id),
                    Some(_) => healed.skipped += 1,
                    None => match store.message(message_id).await?.filter(is_wanted).map(|message| job_of(&message)) {
                        Some(Ok(job)) => {
                            queues.hand_over(queue, &job).await?;
                            healed.healed += 1;
                        }
                        // It was removed for its age or given up, or cannot be read: nobody waits for it any more.
                        Some(Err(_)) | None => over.push(job_id),
                    },
                }
            }
            if !over.is_empty() {
                store.forget_message_jobs(queue, &over).await?;
            }
        }
    }

    /// Makes jobs anew whose tasks still wait for them; answers how many.
    async fn hand_over_again(&self, queue: &Queue, missing: Vec<String>) -> Result<u64, NotNow> {
        let Parts { store, queues, .. } = &self.0;
        let which = WhichHandOvers::OfJobs(queue.clone(), missing);
        let mut lost = store.hand_overs(&which, u32::MAX).await?;
        let rests = |lost: &&HandOver| lost.task.as_ref().is_some_and(|task| task.rests);
        let begin = |lost: &HandOver| Mirrored { task_id: lost.task_id, epoch: lost.epoch, step: Step::Began };
        let begun: Vec<_> = lost.iter().filter(rests).map(begin).collect();
        if !begun.is_empty() {
            // The first try of the new job is the next attempt.
            store.mirror(&begun).await?;
            lost = store.hand_overs(&which, u32::MAX).await?;
        }
        // Noted first: the tries of the new job are counted from the present attempt on.
        let held: Vec<_> = lost.iter().map(|lost| Extension { task_id: lost.task_id, epoch: lost.epoch }).collect();
        store.handed_over_again(&held).await?;
        let mut made = 0;
        for hand_over in &lost {
            let Some(found) = store.task(hand_over.task_id).await? else { continue };
            let task = found.task;
            if task.status != TaskStatus::Running || task.epoch != hand_over.epoch {
                continue;
            }
            let execution = store.execution_of(task.id, task.fire).await?;
            let job = Job::of_task(&task, execution);
            let job = if job.id == hand_over.job_id { job } else { Job::of_its_own(&task, execution) };
            queues.hand_over(&hand_over.queue, &job).await?;
            made += 1;
        }
        // Whoever was cancelled in between has had its job removed before it was made.
        let wanted = store.hand_overs(&which, u32::MAX).await?;
        let wanted: HashSet<_> = wanted.iter().map(|hand_over| hand_over.task_id).collect();
        for HandOver { task_id, queue, job_id, .. } in lost.iter().filter(|lost| !wanted.contains(&lost.task_id)) {
            let found = store.task(*task_id).await?;
            if found.is_none_or(|found| found.task.status == TaskStatus::Cancelled) {
                queues.remove(queue, job_id).await?;
            }
        }
        Ok(made)
    }
}

/// Whether the log is told of a look at info: of the first, of what was healed, and now and then of all jobs being there. A queue
/// without jobs is quiet.
fn is_news(scanned: u64, healed: u64, since_told: Option<Duration>) -> bool {
    healed > 0 || since_told.is_none_or(|since| scanned > 0 && since >= TELL_EVERY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_of_what_was_healed_at_once_and_of_the_rest_now_and_then() {
        let (soon, late) = (Some(TELL_EVERY / 2), Some(TELL_EVERY));
        for (scanned, healed, since_told, expected) in [
            (0, 0, None, true),
            (7, 0, None, true),
            (7, 0, soon, false),
            (7, 0, late, true),
            (7, 1, soon, true),
            (0, 0, late, false),
        ] {
            assert_eq!(is_news(scanned, healed, since_told), expected, "{scanned} {healed} {since_told:?}");
        }
    }
}
