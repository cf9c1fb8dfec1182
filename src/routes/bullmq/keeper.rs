//! The keeper of hand-overs: what queues say becomes the tasks' outcomes, and what queues have lost is handed over again.
//!
//! *Following.* One node follows a queue's events, the one that holds the queue's leadership; another takes over when it is
//! gone. Up to where they were read is kept in the database after what they said was written: a restart repeats a little,
//! and never skips. Whatever is repeated finds the task ended, and changes nothing.
//!
//! *Healing.* Events can be trimmed before they are read, and a queue can lose its jobs. So whoever begins to follow a queue looks up
//! every job of it, and again now and then, at once if Redis shows that it has forgotten: what has ended is settled, and what is missing is handed over again.
//! So are messages that went to a queue, until their jobs have ended. A job can be missing because it ended and was removed: its end
//! stands in the events, which are read to their end before anything is handed over again.
//!
//! *Attempts.* A try that failed is an attempt that ended, and the next one begins when a worker takes the job again. How many have failed
//! the job itself counts; events say when. A try that its worker put off, or that got lost, is not counted, and the attempt goes on.
//!
//! *Attending.* A cancelled task's job is removed if it waits, also when it waits for its next try later, or when the node that made it
//! crashed before it noted that; and a task whose time is up fails.
//!
//! A queue that Redis refuses to show, such as one whose keys are of other types, is left out until it is mended.
//!
//! Redis may be away, flushed or slow: nothing here is waited for by anybody else, and what was not done is done later.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::iter;
use std::sync::Arc;
use std::time::Duration;

use punctual_actors::Origin;
use punctual_domain::hand_over::{HandOver, HandedOver, MessageJob, Mirrored, Queue, Step};
use punctual_domain::id::{Epoch, NodeId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::outbox::{Message, MessageStatus};
use punctual_domain::store::{Extension, Settled, Settling, Store, TaskWithAttempts, WhichHandOvers};
use punctual_domain::task::{AttemptOutcome, MAX_RESULT_BYTES, Settlement, TaskStatus};
use punctual_domain::topic::{Route, TopicDefinition};
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};
use tokio_util::task::AbortOnDropHandle;
use tracing::{debug, error, info, warn};

use super::attention::Attention;
use super::job::Job;
use super::redis::{Found, JobEnd, JobEvent, Queues, Read, Removed, Told};
use super::remove_jobs_of;
use crate::delivery::queue::job_of;
use crate::redis::{NotNow, is_refusal};
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
    /// Up to when all jobs were looked up, in milliseconds of Redis's clock: what events say of tries before is known.
    seen_until: u64,
    /// Whether Redis refused to show it.
    is_refused: bool,
    retried: HashSet<String>,
}

impl Followed {
    /// Whether it went well. A queue that Redis refuses to show is left out until a look at all of it goes well: its trouble is
    /// nobody else's.
    fn or_left_out(&mut self, queue: &Queue, done: Result<(), NotNow>) -> Result<bool, NotNow> {
        let Err(error) = done else { return Ok(true) };
        self.must_heal = true;
        if !error.is_refusal() {
            return Err(error);
        }
        if !self.is_refused {
            warn!(%queue, %error, "the queue cannot be followed");
        }
        self.is_refused = true;
        Ok(false)
    }

    fn note_retried(&mut self, job_id: &str) {
        if self.retried.len() < RETRIED {
            self.retried.insert(job_id.to_owned());
        }
    }
}

/// What was heard of a job: how it ended, and what became of its tries before.
#[derive(Default)]
struct Heard {
    end: Option<JobEnd>,
    tries: Vec<Told>,
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
                // What was heard may have been written in part: what is repeated now must be told from what is new.
                state.queues.values_mut().for_each(|followed| followed.must_heal = true);
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
            if !due {
                continue;
            }
            followed.must_heal = false;
            let looked = self.look_at_all(queue, followed).await;
            followed.healed_at = Some(Instant::now());
            followed.is_refused &= looked.is_err();
            followed.or_left_out(queue, looked)?;
        }
        let mut reader = match state.reader.take() {
            Some(reader) => reader,
            None => queues.reader().await?,
        };
        let shown = state.queues.iter().filter(|(_, followed)| !followed.is_refused);
        let places: Vec<_> = shown.map(|(queue, followed)| (queue.clone(), followed.position.clone())).collect();
        if places.is_empty() {
            sleep(BETWEEN_HEALS).await;
            return Ok(());
        }
        let read = Queues::read(&mut reader, &places).await?;
        state.reader = Some(reader);
        let mut is_full = false;
        for (queue, Read { events, position, is_full: has_more }) in read {
            let Some(followed) = state.queues.get_mut(&queue) else { continue };
            let heard = self.hear(&queue, followed, events).await;
            if followed.or_left_out(&queue, heard)? {
                followed.position = position;
                is_full |= has_more;
            }
        }
        // Nobody who waits for a queue of their own waits longer for one that says much.
        if is_full {
            state.looked_at = state.looked_at.filter(|at| at.elapsed() < *every / 2);
        }
        Ok(())
    }

    /// Reads a queue's events to their end, and looks up all of its jobs.
    async fn look_at_all(&self, queue: &Queue, followed: &mut Followed) -> Result<(), NotNow> {
        // Events from here on are read: what is looked up now is no older.
        if self.0.queues.has_gap(queue, &followed.position).await? {
            followed.position.clear();
        }
        self.catch_up(queue, followed).await?;
        let Healed { scanned, healed, skipped } = self.heal(queue, followed).await?;
        followed.seen_until = self.0.queues.its_time().await?.unsigned_abs();
        // Once at the start, and then where there was something to heal.
        if healed > 0 || followed.healed_at.is_none() {
            info!(%queue, scanned, healed, skipped, "hand-overs reconciled");
        } else {
            debug!(%queue, scanned, healed, skipped, "hand-overs reconciled");
        }
        Ok(())
    }

    /// Reads a queue's events to their end.
    async fn catch_up(&self, queue: &Queue, followed: &mut Followed) -> Result<(), NotNow> {
        while let Some(Read { events, position, is_full }) = self.0.queues.read_now(queue, &followed.position).await? {
            self.hear(queue, followed, events).await?;
            followed.position = position;
            if !is_full {
                break;
            }
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
                    seen_until: 0,
                    is_refused: false,
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
        let mut heard: HashMap<String, Heard> = HashMap::new();
        let (mut others, mut progress) = (Vec::new(), HashMap::new());
        for JobEvent { job_id, at, told } in events {
            match told {
                Told::Ended(_) if !Job::is_of_task(&job_id) => others.push(job_id),
                Told::Ended(end) => {
                    followed.retried.remove(&job_id);
                    heard.entry(job_id).or_default().end = Some(end);
                }
                Told::Progress(said) => {
                    progress.insert(job_id, said);
                }
                Told::WentBack => {
                    followed.note_retried(&job_id);
                    if at >= followed.seen_until {
                        heard.entry(job_id).or_default().tries.push(told);
                    }
                }
                // Of a job that was never with a worker before, the attempt has begun already.
                Told::Began if at >= followed.seen_until && followed.retried.contains(&job_id) => {
                    heard.entry(job_id).or_default().tries.push(told);
                }
                Told::Began => {}
            }
        }
        // What was said after the end of a job changes nothing: its hand-over is gone, or about to go.
        if !progress.is_empty() {
            self.0.store.note_progress(queue, &progress.into_iter().collect::<Vec<_>>()).await?;
        }
        if !others.is_empty() {
            self.0.store.forget_message_jobs(queue, &others).await?;
        }
        let mut heard: Vec<_> = heard.into_iter().collect();
        heard.sort_by(|(one, _), (other, _)| one.cmp(other));
        while !heard.is_empty() {
            let some = heard.split_off(heard.len().saturating_sub(PAGE as usize));
            self.record(queue, some).await?;
        }
        Ok(())
    }

    /// Brings tasks to where their jobs are; what was heard about a job's end counts if it is gone.
    async fn record(&self, queue: &Queue, jobs: Vec<(String, Heard)>) -> Result<(), NotNow> {
        let Parts { store, queues, attention, .. } = &self.0;
        let said: HashMap<_, _> = jobs.into_iter().collect();
        let which = WhichHandOvers::OfJobs(queue.clone(), said.keys().cloned().collect());
        let mut held = store.hand_overs(&which, u32::MAX).await?;
        let known: HashSet<_> = held.iter().map(|hand_over| hand_over.job_id.as_str()).collect();
        // One that is not wanted any more, and whose worker has given it back, is removed before it is tried again.
        let given_back = said.iter().filter(|(id, heard)| !known.contains(id.as_str()) && !heard.tries.is_empty());
        given_back.filter_map(|(id, _)| Job::task_of(id)).for_each(|id| attention.cancelled(id));
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
        self.clear_strays().await?;
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
            let execution = store.execution_of(&task).await?;
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

    /// Looks after what was asked for, for good.
    async fn attend(&self) {
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
    async fn clear_strays(&self) -> Result<(), NotNow> {
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

/// The leadership of who follows a queue.
fn leadership(queue: &Queue) -> String {
    format!("queue {queue}")
}

/// A step of a task in its queue.
#[derive(Debug, PartialEq, Eq)]
enum Stride {
    /// The job's failure of that number, from 0.
    Failed(u32),
    Began,
}

/// How a task comes to where its job is found, after these tries were heard of; none where all was looked up.
///
/// How many have failed is the job's to say. Where more tries went back than that, the others were put off: the earlier ones,
/// for want of knowing. What the job counts already and nobody has heard of yet is left to be heard.
fn strides(task: &HandedOver, first_attempt: u32, found: &Found, tries: &[Told]) -> Vec<Stride> {
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
