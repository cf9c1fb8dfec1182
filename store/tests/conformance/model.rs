//! Random lives against the pure model: after each step the store knows exactly what `punctual_domain::task` says.
//!
//! Seeded, so that a failure comes again. The model repeats the order of claims in the plainest way there is: look at
//! every task.

use std::collections::BTreeMap;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_domain::id::{Epoch, TaskId};
use punctual_domain::json::Json;
use punctual_domain::store::{ClaimRequest, Created, Extension, Page, Settled, Settling, Suspects, TaskFilter, Want};
use punctual_domain::task::{AttemptOutcome, AttemptRecord, MAX_LOST, Settlement, Task, TaskStatus};

use crate::support::*;

const STEPS: usize = 400;
const TOPICS: [&str; 2] = ["mail", "print"];

pub(crate) async fn random_lives_follow_the_model(world: World) {
    Model::new(world, 1).run().await;
}

pub(crate) async fn other_random_lives_follow_the_model(world: World) {
    Model::new(world, 0x5eed).run().await;
}

pub(crate) async fn more_random_lives_follow_the_model(world: World) {
    Model::new(world, 20_260_302).run().await;
}

/// SplitMix64: small, and good enough for dice.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    fn one_in(&mut self, odds: u64) -> bool {
        self.below(odds) == 0
    }

    fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len() as u64) as usize]
    }
}

/// A task as the model knows it.
struct Life {
    task: Task,
    /// Its place among the tasks of its serial key.
    first_due_at: DateTime<Utc>,
    attempts: Vec<AttemptRecord>,
    /// What each of its epochs was settled with.
    settled: BTreeMap<Epoch, Settlement>,
}

impl Life {
    fn is_live(&self) -> bool {
        !self.task.status.has_ended()
    }

    fn became(&mut self, task: Task, outcome: AttemptOutcome, error: Option<&str>, now: DateTime<Utc>) {
        if self.task.status == TaskStatus::Running {
            let attempt = self.attempts.last_mut().expect("the attempt that runs");
            attempt.ended_at = Some(now);
            attempt.outcome = Some(outcome);
            attempt.error = error.map(Into::into);
        }
        self.task = task;
    }
}

struct Model {
    world: World,
    dice: Dice,
    lives: BTreeMap<TaskId, Life>,
    /// What was done, for the message of a failure.
    story: Vec<String>,
}

impl Model {
    fn new(world: World, seed: u64) -> Self {
        Self { world, dice: Dice(seed), lives: BTreeMap::new(), story: vec![format!("seed {seed}")] }
    }

    async fn run(&mut self) {
        for _ in 0..STEPS {
            let touched = match self.dice.below(100) {
                0..25 => self.create().await,
                25..48 => self.claim().await,
                48..75 => self.settle().await,
                75..82 => self.extend().await,
                82..88 => self.expire().await,
                88..91 => self.cancel().await,
                _ => self.advance(),
            };
            self.compare(touched).await;
        }
        let ended = self.lives.values().filter(|life| !life.is_live()).count();
        assert!(ended > 20, "the dice tell a dull story: {ended} of {} ended", self.lives.len());
    }

    /// The end of the story so far.
    fn story(&self) -> String {
        self.story[self.story.len().saturating_sub(25)..].join("\n")
    }

    async fn create(&mut self) -> Vec<TaskId> {
        if self.lives.values().filter(|life| life.is_live()).count() >= 20 {
            return vec![];
        }
        let now = self.world.now();
        let mut new = task(self.dice.pick(&TOPICS)).priority(self.dice.below(3) as i32).attempts(3);
        new = match self.dice.below(3) {
            0 => new.at(now - TimeDelta::milliseconds(self.dice.below(5_000) as i64)),
            1 => new.in_secs(self.dice.below(20)),
            _ => new,
        };
        if self.dice.one_in(3) {
            new = new.serial_key(self.dice.pick(&["s", "t"]));
        }
        if self.dice.one_in(4) {
            new = new.dedupe_key(self.dice.pick(&["d", "e"]));
        }
        let new = new.build();
        self.story.push(format!("create {} {} {:?}", new.id, new.topic, new.due));
        let living = self.lives.values().find(|life| {
            life.is_live()
                && new.dedupe_key.is_some()
                && (&life.task.topic, &life.task.dedupe_key) == (&new.topic, &new.dedupe_key)
        });
        let expected = match living {
            Some(living) => Created::Deduplicated(living.task.clone()),
            None => Created::Fresh(written(new.clone(), now)),
        };
        assert_eq!(self.world.create(new).await, Ok(expected.clone()), "{}", self.story());
        if let Created::Fresh(task) = &expected {
            let life =
                Life { task: task.clone(), first_due_at: task.run_at, attempts: vec![], settled: BTreeMap::new() };
            self.lives.insert(task.id, life);
        }
        vec![expected.task().id]
    }

    async fn claim(&mut self) -> Vec<TaskId> {
        let lease = Duration::from_secs(self.dice.pick(&[1, 5, 30]));
        let slots = self.dice.below(5) as u32;
        let node = self.world.another_node().await;
        // How a limit is shared out among topics is nobody's promise, so a limited claim has one topic.
        let (suspects, topics) = match self.dice.below(4) {
            0 => (Suspects::AtMost(self.dice.below(2) as u32), vec![self.dice.pick(&TOPICS)]),
            1 => (Suspects::Any, vec![self.dice.pick(&TOPICS)]),
            _ => (Suspects::Any, TOPICS.to_vec()),
        };
        let wants = topics.iter().map(|name| Want { topic: topic(name), slots }).collect();
        self.story.push(format!("claim {slots} of {topics:?}, suspects {suspects:?}"));
        let now = self.world.now();
        let mut expected: Vec<_> = topics.iter().flat_map(|name| self.claimable(name, slots, suspects)).collect();
        let request = ClaimRequest { node: node.id, lease, wants, suspects };
        let mut claimed = node.claim(&request).await.unwrap();
        expected.sort_unstable();
        claimed.sort_unstable_by_key(|task| task.id);
        assert_eq!(ids(&claimed), expected, "{}", self.story());
        for id in &expected {
            let life = self.lives.get_mut(id).unwrap();
            life.task = life.task.clone().claim(node.id, lease, now).unwrap();
            life.attempts.push(AttemptRecord {
                number: life.task.attempt,
                node_id: node.id,
                epoch: life.task.epoch,
                started_at: now,
                ended_at: None,
                outcome: None,
                error: None,
            });
        }
        expected
    }

    /// What a claim must take from one topic.
    fn claimable(&self, name: &str, slots: u32, suspects: Suspects) -> Vec<TaskId> {
        let now = self.world.now();
        let mut due: Vec<_> = self
            .lives
            .values()
            .filter(|life| life.task.topic.as_str() == name && life.task.is_due(now) && self.is_next_of_its_key(life))
            .map(|life| &life.task)
            .collect();
        due.sort_by_key(|task| (-task.priority, task.run_at, task.id));
        let mut suspects_left = match suspects {
            Suspects::Any => u32::MAX,
            Suspects::AtMost(most) => most,
        };
        let mut claimable = Vec::new();
        for task in due {
            if claimable.len() == slots as usize {
                break;
            }
            if task.lost > 0 {
                if suspects_left == 0 {
                    continue;
                }
                suspects_left -= 1;
            }
            claimable.push(task.id);
        }
        claimable
    }

    fn is_next_of_its_key(&self, life: &Life) -> bool {
        let of_key = |other: &&Life| {
            other.is_live() && (&other.task.topic, &other.task.serial_key) == (&life.task.topic, &life.task.serial_key)
        };
        life.task.serial_key.is_none()
            || self.lives.values().filter(of_key).all(|other| {
                other.task.status != TaskStatus::Running
                    && (other.first_due_at, other.task.id) >= (life.first_due_at, life.task.id)
            })
    }

    async fn settle(&mut self) -> Vec<TaskId> {
        let now = self.world.now();
        let mut batch = Vec::new();
        let mut expected = Vec::new();
        for id in self.some_ids() {
            let settlement = self.settlement();
            let life = &self.lives[&id];
            let (epoch, settlement) = match self.dice.below(6) {
                0 => (Epoch(life.task.epoch.0 - 1), settlement),
                1 => (Epoch(life.task.epoch.0 + 1), settlement),
                2 => match life.settled.last_key_value() {
                    Some((epoch, before)) => (*epoch, before.clone()),
                    None => continue,
                },
                _ => (life.task.epoch, settlement),
            };
            let Some(answer) = life.answer(epoch, &settlement) else { continue };
            self.story.push(format!("settle {id} by {epoch}: {settlement:?}, {answer:?}"));
            if answer == Settled::Now {
                let life = self.lives.get_mut(&id).unwrap();
                let task = life.task.clone().settle(epoch, &settlement, now).unwrap();
                life.became(task, settlement.outcome(), settlement.error(), now);
                life.settled.insert(epoch, settlement.clone());
            }
            batch.push(Settling { task_id: id, epoch, settlement });
            expected.push(answer);
        }
        let touched = batch.iter().map(|settling| settling.task_id).collect();
        assert_eq!(self.world.settle(batch).await, Ok(expected), "{}", self.story());
        touched
    }

    fn settlement(&mut self) -> Settlement {
        use AttemptOutcome::{Failed, Panicked, TimedOut};
        let outcome = self.dice.pick(&[Failed, TimedOut, Panicked]);
        let error = format!("error {}", self.dice.below(100));
        let after = Duration::from_millis(self.dice.below(10_000));
        match self.dice.below(10) {
            0 | 1 => Settlement::Completed { result: None },
            2 => Settlement::Completed { result: Some(Json::parse(self.dice.below(100).to_string()).unwrap()) },
            3 => Settlement::Failed { outcome, error },
            4..7 => Settlement::Retried { outcome, error, after },
            7 => Settlement::Snoozed { after, error: None },
            8 => Settlement::HandedBack,
            _ => Settlement::Cancelled,
        }
    }

    async fn extend(&mut self) -> Vec<TaskId> {
        let now = self.world.now();
        let lease = Duration::from_secs(self.dice.pick(&[1, 10, 60]));
        let touched = self.some_ids();
        let mut held = Vec::new();
        let mut expected = Vec::new();
        for id in &touched {
            let task = &mut self.lives.get_mut(id).unwrap().task;
            let epoch = Epoch(task.epoch.0 - i64::from(self.dice.one_in(5)));
            let holds = task.lease.as_mut().filter(|lease| lease.epoch == epoch && !lease.has_expired(now));
            let until = holds.map(|held| *held.expires_at.insert(now + lease));
            held.push(Extension { task_id: *id, epoch });
            expected.push(until);
        }
        self.story.push(format!("extend {held:?} by {lease:?}"));
        assert_eq!(self.world.extend(&held, lease).await, Ok(expected), "{}", self.story());
        touched
    }

    async fn expire(&mut self) -> Vec<TaskId> {
        self.story.push("expire".into());
        let now = self.world.now();
        let (mut freed, mut failed) = (0, 0);
        let mut touched = Vec::new();
        for (id, life) in &mut self.lives {
            if let Ok(task) = life.task.clone().lose(MAX_LOST, now) {
                match task.status {
                    TaskStatus::Failed => failed += 1,
                    _ => freed += 1,
                }
                life.became(task, AttemptOutcome::Lost, None, now);
                touched.push(*id);
            }
        }
        let expired = self.world.expire(MAX_LOST, 1000).await.unwrap();
        assert_eq!((expired.freed, expired.failed), (freed, failed), "{}", self.story());
        touched
    }

    async fn cancel(&mut self) -> Vec<TaskId> {
        let now = self.world.now();
        let Some(id) = self.some_ids().pop() else { return vec![] };
        self.story.push(format!("cancel {id}"));
        let life = self.lives.get_mut(&id).unwrap();
        if let Ok(task) = life.task.clone().cancel(now) {
            life.became(task, AttemptOutcome::Cancelled, None, now);
        }
        let expected = self.lives[&id].task.clone();
        assert_eq!(self.world.cancel(id).await, Ok(expected), "{}", self.story());
        vec![id]
    }

    fn advance(&mut self) -> Vec<TaskId> {
        let by = TimeDelta::microseconds(self.dice.below(8_000_000) as i64);
        self.story.push(format!("advance {by}"));
        self.world.advance(by);
        vec![]
    }

    /// Up to three tasks, each once; running ones more often than others.
    fn some_ids(&mut self) -> Vec<TaskId> {
        let mut found = Vec::new();
        for _ in 0..=self.dice.below(3) {
            let running = self.dice.below(4) > 0;
            let among: Vec<_> = self
                .lives
                .iter()
                .filter(|(id, life)| (!running || life.task.status == TaskStatus::Running) && !found.contains(*id))
                .map(|(id, _)| *id)
                .collect();
            if !among.is_empty() {
                found.push(self.dice.pick(&among));
            }
        }
        found
    }

    async fn compare(&self, touched: Vec<TaskId>) {
        let story = self.story();
        let newest = self.world.tasks(&TaskFilter::default(), Page::first(60)).await.unwrap();
        let expected: Vec<_> = self.lives.values().rev().take(60).map(|life| life.task.clone()).collect();
        for (found, expected) in newest.iter().zip(&expected) {
            assert_eq!(found, expected, "{story}");
        }
        assert_eq!(newest.len(), expected.len(), "{story}");
        for id in touched {
            let found = self.world.task(id).await.unwrap().unwrap();
            let life = &self.lives[&id];
            assert_eq!(found.task, life.task, "{story}");
            // When a lost attempt ended, and in which words, nobody knows.
            let comparable = |attempts: &[AttemptRecord]| -> Vec<AttemptRecord> {
                let vague = |attempt: &AttemptRecord| match attempt.outcome {
                    Some(AttemptOutcome::Lost) => AttemptRecord { ended_at: None, error: None, ..attempt.clone() },
                    _ => attempt.clone(),
                };
                attempts.iter().map(vague).collect()
            };
            assert_eq!(comparable(&found.attempts), comparable(&life.attempts), "{story}");
        }
        let tasks = || self.lives.values().map(|life| &life.task);
        let now = self.world.now();
        let pending = tasks().filter(|task| task.status == TaskStatus::Pending);
        let next_due_at = pending.map(|task| task.run_at).filter(|run_at| *run_at > now).min();
        assert_eq!(self.world.next_due_at(now).await, Ok(next_due_at), "{story}");
        let next_expiry_at = tasks().filter_map(|task| task.lease?.expires_at).min();
        let next = self.world.next_repair().await.unwrap();
        assert_eq!((next.now, next.expiry_at), (now, next_expiry_at), "{story}");
    }
}

impl Life {
    /// What a settling must be answered with; `None` where the contract leaves it open.
    fn answer(&self, epoch: Epoch, settlement: &Settlement) -> Option<Settled> {
        if self.task.status == TaskStatus::Running && self.task.epoch == epoch {
            return Some(Settled::Now);
        }
        match self.settled.get(&epoch) {
            Some(before) if before == settlement => Some(Settled::Before),
            Some(before) if before.outcome() == settlement.outcome() => None,
            Some(_) => Some(Settled::LeaseLost),
            // Cancelled from outside, and the handler says so too.
            None if *settlement == Settlement::Cancelled
                && self
                    .attempts
                    .iter()
                    .any(|attempt| attempt.epoch == epoch && attempt.outcome == Some(AttemptOutcome::Cancelled)) =>
            {
                None
            }
            None => Some(Settled::LeaseLost),
        }
    }
}
