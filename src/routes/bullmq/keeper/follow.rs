//! Following: which queues this node follows, and what their events say.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::time::Duration;

use punctual_domain::hand_over::Queue;
use punctual_domain::store::WhichHandOvers;
use punctual_domain::task::{AttemptOutcome, Settlement};
use redis::aio::MultiplexedConnection;
use tokio::time::{Instant, sleep};
use tracing::{debug, info, warn};

use super::super::job::Job;
use super::super::redis::{JobEvent, Queues, Read, Told};
use super::record::Heard;
use super::{AFTER_ERROR, PAGE, Parts, Work, leadership};
use crate::redis::{NotNow, is_refusal};

/// How many rounds there are between two looks at all jobs of a queue.
const HEAL_ROUNDS: u32 = 6;
/// The shortest pause between two such looks, however often Redis forgets.
const BETWEEN_HEALS: Duration = Duration::from_secs(1);
/// How many retried jobs are remembered, so that the beginning of their next try is noticed.
const RETRIED: usize = 10_000;

/// What is known of the queues that this node follows.
#[derive(Default)]
struct State {
    queues: BTreeMap<Queue, Followed>,
    /// When it was last found out which those are.
    looked_at: Option<Instant>,
    /// Whether Redis refuses to show whether it has lost what it held.
    is_blind: bool,
    reader: Option<MultiplexedConnection>,
}

/// A queue that this node follows.
pub(super) struct Followed {
    pub(super) position: String,
    /// The place that the database knows.
    noted: String,
    pub(super) healed_at: Option<Instant>,
    /// When the log was last told of such a look.
    pub(super) told_at: Option<Instant>,
    must_heal: bool,
    /// Up to when all jobs were looked up, in milliseconds of Redis's clock: what events say of tries before is known.
    pub(super) seen_until: u64,
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

    pub(super) fn note_retried(&mut self, job_id: &str) {
        if self.retried.len() < RETRIED {
            self.retried.insert(job_id.to_owned());
        }
    }
}

impl Work {
    /// Follows queues, for good.
    pub(super) async fn follow(&self) {
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
        let has_forgotten = self.has_forgotten(&mut state.is_blind).await?;
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

    /// Whether Redis has lost what it held. Where it refuses to show that, the look that happens now and then finds it.
    async fn has_forgotten(&self, is_blind: &mut bool) -> Result<bool, NotNow> {
        let asked = self.0.queues.has_forgotten(self.0.node).await;
        let was_blind = std::mem::replace(is_blind, asked.as_ref().is_err_and(is_refusal));
        match asked {
            Err(error) if *is_blind => {
                if !was_blind {
                    warn!(%error, "what Redis loses is noticed later: it refuses our key punctual:witness:*");
                }
                Ok(false)
            }
            asked => Ok(asked?),
        }
    }

    /// Reads a queue's events to their end.
    pub(super) async fn catch_up(&self, queue: &Queue, followed: &mut Followed) -> Result<(), NotNow> {
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
                    told_at: None,
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
}
