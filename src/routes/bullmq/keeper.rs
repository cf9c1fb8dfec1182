//! The keeper of hand-overs: what queues say becomes the tasks' outcomes, and what queues have lost is handed over again.
//!
//! *Following.* One node follows a queue's events, the one that holds the queue's leadership; another takes over when it is
//! gone. Up to where they were read is kept in the database after what they said was written: a restart repeats a little,
//! and never skips. Whatever is repeated finds the task ended, and changes nothing.
//!
//! *Healing.* Events can be trimmed before they are read, and a queue can lose its jobs. So whoever begins to follow a queue looks up
//! every job of it, and again now and then, at once if Redis shows that it has forgotten: what has ended is settled, and what is missing is handed over again.
//! So are messages that went to a queue, until their jobs have ended.
//!
//! *Attending.* A cancelled task's job is removed if it has not begun, and a task whose time is up fails.
//!
//! Redis may be away, flushed or slow: nothing here is waited for by anybody else, and what was not done is done later.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use punctual_actors::Origin;
use punctual_domain::hand_over::{HandOver, MessageJob, MirroredAttempt, Queue};
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::outbox::{Message, MessageStatus};
use punctual_domain::store::{Extension, Settled, Settling, Store, WhichHandOvers};
use punctual_domain::task::{AttemptOutcome, MAX_RESULT_BYTES, Settlement, TaskStatus};
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

use super::attention::Attention;
use super::job::Job;
use super::redis::{Found, JobEnd, JobEvent, Queues, Read, Told};
use crate::delivery::queue::job_of;
use crate::redis::NotNow;
use crate::store_time::StoreTime;
use crate::topics::TopicDirectory;
use crate::wake::Wake;

/// How many jobs are looked up together.
const PAGE: u32 = 200;
/// How many rounds there are between two looks at all jobs of a queue.
const HEAL_ROUNDS: u32 = 6;
/// The shortest pause between two such looks, however often Redis forgets.
const BETWEEN_HEALS: Duration = Duration::from_secs(1);
/// How long to wait after Redis or the database did not answer.
const AFTER_ERROR: Duration = Duration::from_millis(500);
/// How many retried jobs are remembered, so that the beginning of their next try is noticed.
const RETRIED: usize = 10_000;

/// What a keeper works with.
pub(crate) struct Parts {
    pub(crate) queues: Queues,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) attention: Arc<Attention>,
    pub(crate) topics: Arc<TopicDirectory>,
    pub(crate) wake: Arc<Wake>,
    pub(crate) time: Arc<StoreTime>,
    pub(crate) node: NodeId,
    /// How long a round lasts.
    pub(crate) every: Duration,
}

/// A keeper at work; ends with it.
pub(crate) struct Keeper {
    work: Arc<Work>,
    running: AbortOnDropHandle<()>,
}

impl Keeper {
    pub(crate) fn start(parts: Parts) -> Self {
        let work = Arc::new(Work(parts));
        let running = tokio::spawn(keep(Arc::clone(&work)));
        Self { work, running: AbortOnDropHandle::new(running) }
    }

    /// Ends, and lets other nodes follow at once.
    pub(crate) async fn stop(self) {
        self.running.abort();
        let Ok(queues) = self.work.0.store.queues().await else { return };
        for (queue, _) in queues {
            // Whoever does not hear of it waits for the lease to end.
            let _ = self.work.0.store.resign(&leadership(&queue), self.work.0.node).await;
        }
    }
}

/// Works until it is aborted, whatever happens.
async fn keep(work: Arc<Work>) {
    loop {
        let (following, attending) = (Arc::clone(&work), Arc::clone(&work));
        let mut following = AbortOnDropHandle::new(tokio::spawn(async move { following.follow().await }));
        let mut attending = AbortOnDropHandle::new(tokio::spawn(async move { attending.attend().await }));
        let broke = tokio::select! {
            broke = &mut following => broke,
            broke = &mut attending => broke,
        };
        if let Err(error) = broke {
            error!(%error, "the keeper of hand-overs broke off, and begins again");
        }
        sleep(AFTER_ERROR).await;
    }
}

struct Work(Parts);

/// What is known of the queues that this node follows.
#[derive(Default)]
struct State {
    queues: BTreeMap<Queue, Followed>,
    /// When it was last found out which those are.
    looked_at: Option<Instant>,
    reader: Option<MultiplexedConnection>,
}

/// A queue that this node follows.
struct Followed {
    position: String,
    /// The place that the database knows.
    noted: String,
    healed_at: Option<Instant>,
    must_heal: bool,
    retried: HashSet<String>,
}

/// What a look at all jobs of a queue found.
#[derive(Default)]
struct Healed {
    scanned: u64,
    healed: u64,
    skipped: u64,
}

impl Work {
    /// Follows queues, for good.
    async fn follow(&self) {
        let mut state = State::default();
        let mut is_well = true;
        loop {
            let passed = self.pass(&mut state).await;
            match &passed {
                Ok(()) if !is_well => info!("hand-overs are followed again"),
                Err(error) if is_well => warn!(%error, "hand-overs are not followed"),
                Err(error) => debug!(%error, "hand-overs are still not followed"),
                Ok(()) => {}
            }
            is_well = passed.is_ok();
            if !is_well {
                state.reader = None;
                sleep(AFTER_ERROR).await;
            }
        }
    }

    /// One round: who follows what, whether everything is still there, and the next events.
    async fn pass(&self, state: &mut State) -> Result<(), NotNow> {
        let Parts { queues, attention, every, .. } = &self.0;
        if state.looked_at.is_none_or(|at| at.elapsed() >= *every / 2) {
            self.look_around(state).await?;
            state.looked_at = Some(Instant::now());
        }
        if state.queues.is_empty() {
            tokio::select! {
                () = attention.widened.notified() => state.looked_at = None,
                () = sleep(*every) => {}
            }
            return Ok(());
        }
        let has_forgotten = queues.has_forgotten(self.0.node).await?;
        for (queue, followed) in &mut state.queues {
            followed.must_heal |= has_forgotten;
            let due = followed.healed_at.is_none_or(|at| match followed.must_heal {
                true => at.elapsed() >= BETWEEN_HEALS,
                false => at.elapsed() >= *every * HEAL_ROUNDS,
            });
            if due {
                followed.must_heal = false;
                // Events from here on are read: what is looked up now is no older.
                if queues.has_gap(queue, &followed.position).await? {
                    followed.position.clear();
                }
                let Healed { scanned, healed, skipped } = self.heal(queue).await?;
                // Once at the start, and then where there was something to heal.
                if healed > 0 || followed.healed_at.is_none() {
                    info!(%queue, scanned, healed, skipped, "hand-overs reconciled");
                } else {
                    debug!(%queue, scanned, healed, skipped, "hand-overs reconciled");
                }
                followed.healed_at = Some(Instant::now());
            }
        }
        let mut reader = match state.reader.take() {
            Some(reader) => reader,
            None => queues.reader().await?,
        };
        let places: Vec<_> =
            state.queues.iter().map(|(queue, followed)| (queue.clone(), followed.position.clone())).collect();
        let read = Queues::read(&mut reader, &places).await?;
        state.reader = Some(reader);
        let mut is_full = false;
        for (queue, Read { events, position, is_full: has_more }) in read {
            let Some(followed) = state.queues.get_mut(&queue) else { continue };
            self.hear(&queue, followed, events).await?;
            followed.position = position;
            is_full |= has_more;
        }
        // Nobody who waits for a queue of their own waits longer for one that says much.
        if is_full {
            state.looked_at = state.looked_at.filter(|at| at.elapsed() < *every / 2);
        }
        Ok(())
    }

    /// Notes how far queues were read, and finds out which ones this node follows from now on.
    async fn look_around(&self, state: &mut State) -> Result<(), NotNow> {
        let Parts { store, node, every, .. } = &self.0;
        for (queue, followed) in &mut state.queues {
            if followed.noted != followed.position {
                store.note_position(queue, &followed.position).await?;
                followed.noted.clone_from(&followed.position);
            }
        }
        let known = store.queues().await?;
        if !known.is_empty() {
            self.fail_overdue().await?;
        }
        for (queue, position) in known {
            let leads = store.lead(&leadership(&queue), *node, *every * 3).await?.owner == *node;
            if !leads {
                state.queues.remove(&queue);
            } else {
                state.queues.entry(queue).or_insert_with(|| Followed {
                    noted: position.clone(),
                    position,
                    healed_at: None,
                    must_heal: true,
                    retried: HashSet::new(),
                });
            }
        }
        Ok(())
    }

    /// Fails what was not done in time; its job is removed if it has not begun.
    async fn fail_overdue(&self) -> Result<(), NotNow> {
        let overdue = self.0.store.hand_overs(&WhichHandOvers::Overdue, PAGE).await?;
        let settlements = overdue.into_iter().map(|hand_over| {
            let after = (hand_over.ends_at - hand_over.handed_over_at).num_seconds();
            let error = format!("the queue {} did not end it within {after} s", hand_over.queue.name);
            (hand_over, Settlement::Failed { outcome: AttemptOutcome::TimedOut, error })
        });
        for hand_over in self.settle(settlements.collect()).await? {
            self.0.attention.cancelled(hand_over.task_id);
        }
        Ok(())
    }

    /// Writes what events say.
    async fn hear(&self, queue: &Queue, followed: &mut Followed, events: Vec<JobEvent>) -> Result<(), NotNow> {
        let mut said: HashMap<String, Option<JobEnd>> = HashMap::new();
        let (mut others, mut progress) = (Vec::new(), HashMap::new());
        for JobEvent { job_id, told } in events {
            match told {
                Told::Ended(_) if !Job::is_of_task(&job_id) => others.push(job_id),
                Told::Ended(end) => {
                    followed.retried.remove(&job_id);
                    said.insert(job_id, Some(end));
                }
                Told::Progress(said) => {
                    progress.insert(job_id, said);
                }
                Told::Retried if followed.retried.len() < RETRIED => {
                    followed.retried.insert(job_id);
                }
                Told::Began if followed.retried.contains(&job_id) => {
                    said.entry(job_id).or_insert(None);
                }
                Told::Retried | Told::Began => {}
            }
        }
        // What was said after the end of a job changes nothing: its hand-over is gone, or about to go.
        if !progress.is_empty() {
            self.0.store.note_progress(queue, &progress.into_iter().collect::<Vec<_>>()).await?;
        }
        if !others.is_empty() {
            self.0.store.forget_message_jobs(queue, &others).await?;
        }
        let jobs: Vec<_> = said.keys().cloned().collect();
        for some in jobs.chunks(PAGE as usize) {
            let mut ends: Vec<_> = some.iter().map(|id| (id.clone(), said.remove(id).flatten())).collect();
            ends.sort_by(|(one, _), (other, _)| one.cmp(other));
            self.record(queue, ends).await?;
        }
        Ok(())
    }

    /// Brings tasks to where their jobs are; what was said about a job's end counts if it is gone.
    async fn record(&self, queue: &Queue, jobs: Vec<(String, Option<JobEnd>)>) -> Result<(), NotNow> {
        let Parts { store, queues, .. } = &self.0;
        let said: HashMap<_, _> = jobs.into_iter().collect();
        let which = WhichHandOvers::OfJobs(queue.clone(), said.keys().cloned().collect());
        let mut held = store.hand_overs(&which, u32::MAX).await?;
        if held.is_empty() {
            return Ok(());
        }
        let ids: Vec<_> = held.iter().map(|hand_over| hand_over.job_id.as_str()).collect();
        let found = queues.look_up(queue, &ids).await?;
        let found: HashMap<_, _> = held.iter().map(|hand_over| hand_over.job_id.clone()).zip(found).collect();
        let mirrored: Vec<_> = held.iter().filter_map(|held| mirrored(held, found[&held.job_id].as_ref()?)).collect();
        if !mirrored.is_empty() {
            store.mirror_attempts(&mirrored).await?;
            // Each has another epoch now.
            held = store.hand_overs(&which, u32::MAX).await?;
        }
        let settlements = held.into_iter().filter_map(|hand_over| {
            let end = match found.get(&hand_over.job_id) {
                Some(Some(found)) => found.end.clone(),
                _ => said.get(&hand_over.job_id).cloned().flatten(),
            };
            let settlement = settlement(&hand_over, end?);
            Some((hand_over, settlement))
        });
        self.settle(settlements.collect()).await?;
        Ok(())
    }

    /// Settles tasks and forgets their hand-overs; answers those that were settled now.
    async fn settle(&self, ended: Vec<(HandOver, Settlement)>) -> Result<Vec<HandOver>, NotNow> {
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

    /// Looks up every job of a queue: what has ended is settled, what is missing is handed over again.
    async fn heal(&self, queue: &Queue) -> Result<Healed, NotNow> {
        let Parts { store, queues, .. } = &self.0;
        let mut healed = Healed::default();
        let mut after = None;
        loop {
            let page = store.hand_overs(&WhichHandOvers::OfQueue(queue.clone(), after), PAGE).await?;
            let Some(last) = page.last() else { break };
            after = Some(last.task_id);
            let ids: Vec<_> = page.iter().map(|hand_over| hand_over.job_id.as_str()).collect();
            let found = queues.look_up(queue, &ids).await?;
            let (mut ended, mut again) = (Vec::new(), Vec::new());
            healed.scanned += page.len() as u64;
            for (hand_over, found) in page.into_iter().zip(found) {
                match found {
                    None => {
                        if let Some(held) = self.hand_over_again(&hand_over).await? {
                            again.push(held);
                        }
                    }
                    Some(found) if found.end.is_some() || mirrored(&hand_over, &found).is_some() => {
                        ended.push((hand_over.job_id, None));
                    }
                    Some(_) => healed.skipped += 1,
                }
            }
            healed.healed += (again.len() + ended.len()) as u64;
            store.handed_over_again(&again).await?;
            self.record(queue, ended).await?;
        }
        self.heal_messages(queue, &mut healed).await?;
        self.clear_strays().await?;
        metrics::counter!("punctual_hand_overs_total", "result" => "healed").increment(healed.healed);
        Ok(healed)
    }

    /// The same for messages: what has ended is forgotten, what is missing is given to the queue again.
    async fn heal_messages(&self, queue: &Queue, healed: &mut Healed) -> Result<(), NotNow> {
        let is_wanted = |message: &Message| message.status != MessageStatus::Failed;
        let Parts { store, queues, .. } = &self.0;
        let mut after = None;
        loop {
            let page = store.message_jobs(queue, after, PAGE).await?;
            let Some(last) = page.last() else { return Ok(()) };
            after = Some(last.message_id);
            let ids: Vec<_> = page.iter().map(|job| job.job_id.as_str()).collect();
            let found = queues.look_up(queue, &ids).await?;
            healed.scanned += page.len() as u64;
            let mut over = Vec::new();
            for (MessageJob { message_id, job_id }, found) in page.into_iter().zip(found) {
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

    /// Makes the job of a task anew; `None` if the task has gone on meanwhile.
    async fn hand_over_again(&self, hand_over: &HandOver) -> Result<Option<Extension>, NotNow> {
        let Parts { store, queues, .. } = &self.0;
        let Some(found) = store.task(hand_over.task_id).await? else { return Ok(None) };
        let task = found.task;
        if task.status != TaskStatus::Running || task.epoch != hand_over.epoch {
            return Ok(None);
        }
        let execution = store.execution_of(&task).await?;
        let job = Job::of_task(&task, execution);
        let job = if job.id == hand_over.job_id { job } else { Job::of_its_own(&task, execution) };
        queues.hand_over(&hand_over.queue, &job).await?;
        Ok(Some(Extension { task_id: task.id, epoch: task.epoch }))
    }

    /// Looks after what was asked for, for good.
    async fn attend(&self) {
        loop {
            self.0.attention.rung.notified().await;
            let (jobs, cancelled) = self.0.attention.take();
            let mut by_queue: BTreeMap<Queue, Vec<(String, Option<JobEnd>)>> = BTreeMap::new();
            for (queue, job) in jobs {
                by_queue.entry(queue).or_default().push((job, None));
            }
            // What is not done now, healing finds.
            for (queue, jobs) in by_queue {
                let (jobs, others): (Vec<_>, Vec<_>) = jobs.into_iter().partition(|(id, _)| Job::is_of_task(id));
                if let Err(error) = self.forget_ended(&queue, others).await {
                    debug!(%queue, %error, "messages that have ended are left to the next look");
                }
                if let Err(error) = self.record(&queue, jobs).await {
                    debug!(%queue, %error, "jobs that have ended are left to the next look");
                }
            }
            for id in cancelled {
                if let Err(error) = self.clear_away(id).await {
                    debug!(task_id = %id, %error, "the job of a task that ended is left to the next look");
                }
            }
        }
    }

    /// Forgets messages whose jobs have ended.
    async fn forget_ended(&self, queue: &Queue, jobs: Vec<(String, Option<JobEnd>)>) -> Result<(), NotNow> {
        let ids: Vec<_> = jobs.iter().map(|(id, _)| id.as_str()).collect();
        let found = self.0.queues.look_up(queue, &ids).await?;
        let has_ended = |found: Option<Found>| found.is_some_and(|found| found.end.is_some());
        let jobs = jobs.iter().zip(found).filter(|(_, found)| has_ended(found.clone()));
        let over: Vec<_> = jobs.map(|((id, _), _)| id.clone()).collect();
        match over.is_empty() {
            true => Ok(()),
            false => Ok(self.0.store.forget_message_jobs(queue, &over).await?),
        }
    }

    /// Removes the job of a task that has ended otherwise, if it has not begun.
    async fn clear_away(&self, id: TaskId) -> Result<(), NotNow> {
        let strays = self.0.store.hand_overs(&WhichHandOvers::OfTask(id), 1).await?;
        self.clear(strays.into_iter().filter(|hand_over| hand_over.task.is_none()).collect()).await
    }

    /// The same for all whose ends nobody has looked after.
    async fn clear_strays(&self) -> Result<(), NotNow> {
        loop {
            let strays = self.0.store.hand_overs(&WhichHandOvers::Stray, PAGE).await?;
            let is_last = strays.len() < PAGE as usize;
            self.clear(strays).await?;
            if is_last {
                return Ok(());
            }
        }
    }

    async fn clear(&self, strays: Vec<HandOver>) -> Result<(), NotNow> {
        for HandOver { task_id, queue, job_id, .. } in &strays {
            if self.0.queues.remove(queue, job_id).await? {
                debug!(%task_id, %queue, job_id, "job of an ended task removed");
            }
        }
        let ids: Vec<_> = strays.iter().map(|stray| stray.task_id).collect();
        Ok(self.0.store.forget_hand_overs(&ids).await?)
    }
}

/// The leadership of who follows a queue.
fn leadership(queue: &Queue) -> String {
    format!("queue {queue}")
}

/// The attempt that a job has come to, if its task does not know of it.
fn mirrored(hand_over: &HandOver, found: &Found) -> Option<MirroredAttempt> {
    let attempt = hand_over.first_attempt + found.started.saturating_sub(1);
    (attempt > hand_over.task.as_ref()?.attempt).then(|| MirroredAttempt {
        task_id: hand_over.task_id,
        epoch: hand_over.epoch,
        attempt,
        error: Settlement::failed(found.error.clone().unwrap_or_default()).error().unwrap_or_default().to_owned(),
    })
}

/// What a job's end means for its task.
fn settlement(hand_over: &HandOver, end: JobEnd) -> Settlement {
    match end {
        JobEnd::Failed(error) if error.is_empty() => Settlement::failed("the job failed without a reason".into()),
        JobEnd::Failed(error) => Settlement::failed(error),
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
