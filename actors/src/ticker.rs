//! The Ticker: due schedules become fires and tasks, as long as this node leads.
//!
//! Owns the rhythm only: what is due, what was fired and what comes next is in the store. What wakes it: the next instant
//! of any schedule, a schedule that was written, and the Elector. It never begins a transaction after the instant until
//! which leading is certain, and never puts more into one than others can wait for.
//!
//! - Fresh instants go first. Schedules that fell behind are caught up in small transactions in between, no faster than
//!   their tasks are claimed, so that neither fresh fires nor other tasks wait for them.
//! - A schedule that cannot be decided is paused with a note, and does not keep the others waiting.
//! - Schedules planned with other zone data than ours are planned anew, never for an instant that has passed.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::fire::{DueSchedule, FireRules, Room, Tick, decide_within};
use punctual_domain::id::ScheduleId;
use punctual_domain::news::News;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Lateness, Replanned, Store, StoreError, Ticked};
use punctual_domain::task::TaskStatus;
use ractor::{Actor, ActorProcessingErr, ActorRef, RpcReplyPort};
use tokio::time::Instant;

use crate::announcer::Announcer;
use crate::mailbox::Probe;
use crate::meters::{count_ended, count_fires};
use crate::store_clock::StoreClock;
use crate::supervisor::SupervisorMessage;
use crate::wake::Alarm;
use crate::watch::{self, MISSED_AFTER};

/// How many fresh schedules one transaction decides.
const FRESH: u32 = 500;
/// How many such transactions follow each other before those that fell behind get a turn.
const FRESH_ROUNDS: usize = 8;
/// How many schedules that fell behind one transaction decides, and what it makes of them at the most.
const BEHIND: u32 = 100;
const BEHIND_ROOM: Room = Room { fires: 500, fires_of_one: 10, instants: 5_000 };
/// With so many due tasks waiting to be claimed, no more are made of instants long past.
const MOST_WAITING: u32 = 1_000;
/// How soon that is looked at again, and how long it holds up the catching up: some tasks nobody ever claims.
const WHILE_WAITING: Duration = Duration::from_millis(20);
const LONGEST_HOLD: Duration = Duration::from_secs(1);
/// How many plans are looked at in one round.
const ROUND: u32 = 500;
/// How often plans made with other zone data are looked for, and how long the Ticker sleeps at the most.
const REPLAN_EVERY: Duration = Duration::from_secs(60);
/// How long to wait for an instant that is due after nothing was decided: by the store's clock it may not be due yet, or
/// another node may be at it. Doubled with each look in vain.
const FIRST_SECOND_LOOK: Duration = Duration::from_millis(1);
const LONGEST_SECOND_LOOK: Duration = Duration::from_millis(250);
/// The first and the longest wait while the store is away.
const FIRST_WAIT: Duration = Duration::from_millis(100);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

pub(crate) enum TickerMessage {
    /// How many messages wait?
    Probe(Probe),
    /// This node leads, until then for certain; without an end where there are no others.
    Leads { until: Option<Instant> },
    /// Another node leads, or nobody.
    Follows,
    /// Schedules were written.
    Look,
    /// Decide what is due.
    Tick,
    /// Tick no more, and answer.
    Drain(RpcReplyPort<()>),
}

/// Configuration of the Ticker.
pub(crate) struct Ticker {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) rules: FireRules,
    pub(crate) supervisor: ActorRef<SupervisorMessage>,
}

pub(crate) struct State {
    lead: Lead,
    /// A `Tick` to ourselves is on its way.
    tick_queued: bool,
    /// When a schedule is due, by our clock; `None` if that is not known.
    due_at: Option<DateTime<Utc>>,
    store_clock: StoreClock,
    announcer: Option<Announcer>,
    alarm: Alarm,
    second_look: SecondLook,
    /// Schedules that fell behind are being caught up.
    catching_up: bool,
    /// Since when that waits for tasks to be claimed.
    held_since: Option<Instant>,
    plans: Plans,
    wait: Duration,
    draining: bool,
}

/// Whether this node leads.
#[derive(Clone, Copy)]
enum Lead {
    No,
    Until(Instant),
    ForGood,
}

impl Lead {
    fn holds(self) -> bool {
        match self {
            Self::No => false,
            Self::Until(end) => Instant::now() < end,
            Self::ForGood => true,
        }
    }
}

/// How far looking for plans that were made with other zone data has come.
enum Plans {
    /// Up to this schedule.
    Looking(Option<ScheduleId>),
    /// All were looked at, then.
    LookedAt(Instant),
}

/// When to tick again.
enum Wake {
    AtOnce,
    After(Duration),
    At(DateTime<Utc>),
}

impl Actor for Ticker {
    type Msg = TickerMessage;
    type State = State;
    type Arguments = ();

    async fn pre_start(&self, _: ActorRef<TickerMessage>, (): ()) -> Result<State, ActorProcessingErr> {
        Ok(State {
            lead: Lead::No,
            tick_queued: false,
            due_at: None,
            store_clock: StoreClock::new(self.clock.clone()),
            announcer: Announcer::start(&self.store),
            alarm: Alarm::default(),
            second_look: SecondLook::default(),
            catching_up: false,
            held_since: None,
            plans: Plans::Looking(None),
            wait: FIRST_WAIT,
            draining: false,
        })
    }

    async fn handle(
        &self,
        myself: ActorRef<TickerMessage>,
        message: TickerMessage,
        state: &mut State,
    ) -> Result<(), ActorProcessingErr> {
        match message {
            TickerMessage::Probe(probe) => probe.answer(),
            TickerMessage::Leads { until } => {
                let led = state.lead.holds();
                state.lead = until.map_or(Lead::ForGood, Lead::Until);
                if !led {
                    state.due_at = None;
                    state.plans = Plans::Looking(None);
                    self.queue_tick(&myself, state);
                }
            }
            TickerMessage::Follows => {
                state.lead = Lead::No;
                state.alarm.clear();
            }
            TickerMessage::Look => {
                state.due_at = None;
                self.queue_tick(&myself, state);
            }
            TickerMessage::Tick => {
                state.tick_queued = false;
                self.tick(&myself, state).await;
            }
            TickerMessage::Drain(reply) => {
                state.draining = true;
                state.alarm.clear();
                // Whoever asked may have stopped waiting.
                let _ = reply.send(());
            }
        }
        Ok(())
    }
}

impl Ticker {
    /// Lets what is in the mailbox come first: who leads may be in it.
    fn queue_tick(&self, myself: &ActorRef<TickerMessage>, state: &mut State) {
        let may = !state.tick_queued && !state.draining && state.lead.holds();
        if may && myself.cast(TickerMessage::Tick).is_ok() {
            state.tick_queued = true;
        }
    }

    async fn tick(&self, myself: &ActorRef<TickerMessage>, state: &mut State) {
        if state.draining || !state.lead.holds() {
            return;
        }
        match self.pass(state).await {
            Ok(wake) => {
                state.wait = FIRST_WAIT;
                match wake {
                    Wake::AtOnce => self.queue_tick(myself, state),
                    Wake::After(wait) => state.alarm.set_after(wait, myself, TickerMessage::Tick),
                    Wake::At(at) => state.alarm.set(&self.clock, at, myself, TickerMessage::Tick),
                }
            }
            Err(error) => {
                tracing::warn!(%error, "schedules could not be ticked");
                state.alarm.set_after(state.wait, myself, TickerMessage::Tick);
                state.wait = (state.wait * 2).min(LONGEST_WAIT);
            }
        }
    }

    /// One round: fresh instants, a little of what fell behind, and what else there is; then when to wake next.
    async fn pass(&self, state: &mut State) -> Result<Wake, StoreError> {
        // Awake for something else, a leader with nothing due writes nothing.
        let is_due = state.due_at.is_none_or(|at| at <= self.clock.now());
        // What just fires however late it is was missed all the same, and nobody could tell afterwards.
        if is_due && self.rules.misfire_threshold.to_std().is_ok_and(|threshold| threshold > MISSED_AFTER) {
            watch::note_missed(&*self.store).await?;
        }
        let mut has_decided = false;
        for _ in 0..if is_due { FRESH_ROUNDS } else { 0 } {
            let fresh = Lateness::AtMost(self.rules.misfire_threshold);
            let decided = self.tick_once(state, fresh, FRESH, Room::FRESH).await?;
            has_decided |= decided > 0;
            if !state.lead.holds() {
                return Ok(Wake::AtOnce);
            }
            if decided < u64::from(FRESH) {
                break;
            }
        }
        state.store_clock.learn(&*self.store).await?;
        let plans_left = self.replan(state).await?;
        let next = self.store.next_tick_at().await?;
        let now = self.clock.now();
        let ours = |at: Option<DateTime<Utc>>| at.map(|at| state.store_clock.to_ours(at));
        let (fire_at, resume_at) = (ours(next.fire_at), ours(next.resume_at));
        let due_at = [fire_at, resume_at].into_iter().flatten().min().unwrap_or(DateTime::<Utc>::MAX_UTC);
        state.due_at = Some(due_at);
        if fire_at.is_some_and(|at| now - at > self.rules.misfire_threshold) {
            return self.catch_up(state).await;
        }
        state.catching_up = false;
        if plans_left {
            return Ok(Wake::AtOnce);
        }
        if due_at <= now {
            return Ok(state.second_look.after(has_decided));
        }
        state.second_look = SecondLook::default();
        Ok(Wake::At(due_at.min(now + REPLAN_EVERY)))
    }

    /// A little of what fell behind, unless the tasks made of it so far are still waiting.
    async fn catch_up(&self, state: &mut State) -> Result<Wake, StoreError> {
        if !state.catching_up {
            watch::note_missed(&*self.store).await?;
            state.catching_up = true;
        }
        let held_since = *state.held_since.get_or_insert_with(Instant::now);
        let waiting = self.store.due_tasks(MOST_WAITING).await?;
        if waiting >= u64::from(MOST_WAITING) && held_since.elapsed() < LONGEST_HOLD {
            return Ok(Wake::After(WHILE_WAITING));
        }
        state.held_since = None;
        let behind = Lateness::Over(self.rules.misfire_threshold);
        let decided = self.tick_once(state, behind, BEHIND, BEHIND_ROOM).await?;
        Ok(state.second_look.after(decided > 0))
    }

    /// One transaction; answers how many schedules were decided.
    async fn tick_once(&self, state: &State, lateness: Lateness, most: u32, room: Room) -> Result<u64, StoreError> {
        let room = Mutex::new(room);
        let decision = |due: &DueSchedule, now: DateTime<Utc>| {
            let mut room = room.lock().unwrap_or_else(PoisonError::into_inner);
            if room.is_used_up() {
                return None;
            }
            let decided = decide_within(due, now, &self.rules, &mut room);
            Some(decided.unwrap_or_else(|error| Tick::stop(&due.schedule, &error, &self.rules)))
        };
        let ticked = self.store.tick(lateness, most, &decision).await?;
        self.tell(state, &ticked);
        count_fires(&ticked);
        count_ended(&*self.store, TaskStatus::Cancelled, &ticked.cancelled).await;
        Ok(ticked.schedules)
    }

    /// Wakes those who wait for what a tick made.
    fn tell(&self, state: &State, ticked: &Ticked) {
        for (schedule_id, reason) in &ticked.paused {
            tracing::error!(%schedule_id, reason, "a schedule that cannot be understood was paused");
        }
        for (topic, run_at) in &ticked.due {
            // A Supervisor that is gone takes us along.
            let _ = self.supervisor.cast(SupervisorMessage::TaskWritten { topic: topic.clone(), run_at: *run_at });
        }
        for id in &ticked.stopped {
            let _ = self.supervisor.cast(SupervisorMessage::TaskCancelled(*id));
        }
        if let Some(announcer) = &state.announcer
            && ticked.fired > 0
        {
            announcer.tell(News { cancelled: ticked.stopped.clone(), ..News::of_tasks() });
        }
    }

    /// Plans schedules anew that were planned with other zone data, a round of them; whether there may be more.
    async fn replan(&self, state: &mut State) -> Result<bool, StoreError> {
        let after = match state.plans {
            Plans::Looking(after) => after,
            Plans::LookedAt(at) if at.elapsed() >= REPLAN_EVERY => None,
            Plans::LookedAt(_) => return Ok(false),
        };
        let tz_version = self.rules.zones.version();
        let stale = self.store.stale_plans(tz_version, after, ROUND).await?;
        if !stale.is_empty() {
            let now = self.store.now().await?;
            let plans: Vec<_> = stale.iter().filter_map(|schedule| self.plan_anew(schedule, now)).collect();
            self.store.replan(&plans, tz_version).await?;
        }
        let is_last = stale.len() < ROUND as usize;
        state.plans = match stale.last() {
            Some(last) if !is_last => Plans::Looking(Some(last.id)),
            _ => Plans::LookedAt(Instant::now()),
        };
        Ok(!is_last)
    }

    /// The next instant after `now` by our zone data; one that cannot be understood any more says so when it is due.
    fn plan_anew(&self, schedule: &Schedule, now: DateTime<Utc>) -> Option<Replanned> {
        let mut planned = schedule.clone();
        planned.plan(now, &self.rules.zones).ok()?;
        let (was, next_fire_at) = (schedule.next_fire_at, planned.next_fire_at);
        if next_fire_at != was {
            tracing::warn!(
                schedule_id = %schedule.id,
                name = schedule.definition.name,
                was = was.map(tracing::field::display),
                is = next_fire_at.map(tracing::field::display),
                tz_version = planned.tz_version,
                "new zone data moved a schedule"
            );
        }
        Some(Replanned { id: schedule.id, version: schedule.version, was, next_fire_at })
    }
}

/// How long to wait with something due: not at all after a round that decided anything, since more became due meanwhile.
#[derive(Debug)]
struct SecondLook(Duration);

impl Default for SecondLook {
    fn default() -> Self {
        Self(FIRST_SECOND_LOOK)
    }
}

impl SecondLook {
    fn after(&mut self, has_decided: bool) -> Wake {
        if has_decided {
            *self = Self::default();
            return Wake::AtOnce;
        }
        let wait = self.0;
        self.0 = (wait * 2).min(LONGEST_SECOND_LOOK);
        Wake::After(wait)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_looks_in_vain_make_the_ticker_wait_and_each_doubles_the_wait() {
        let mut look = SecondLook::default();
        let mut waits = |rounds: &[bool]| -> Vec<Option<u64>> {
            let wait = |has_decided: &bool| match look.after(*has_decided) {
                Wake::After(wait) => Some(wait.as_millis() as u64),
                _ => None,
            };
            rounds.iter().map(wait).collect()
        };
        assert_eq!(waits(&[true; 20]), [None; 20]);
        assert_eq!(waits(&[false; 4]), [Some(1), Some(2), Some(4), Some(8)]);
        assert_eq!(waits(&[true, false]), [None, Some(1)]);
        assert_eq!(waits(&[false; 20]).last(), Some(&Some(250)));
    }
}
