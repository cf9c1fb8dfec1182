//! Who is told that tasks or schedules were written: the engine of this process at once, and other nodes through the
//! database. All of it is hints; what they save is waiting for the next look.

use std::collections::HashMap;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_actors::{ActorStatus, Announcer, Begun, Hints, count_ended, count_fires};
use punctual_domain::fire::{DueSchedule, FireRules, Tick, decide_before_deletion};
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::news::News;
use punctual_domain::store::{Created, Creation, Decide, Remember, Store, StoreError};
use punctual_domain::task::{NewTask, Task, TaskStatus};
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tracing::{info, warn};

/// How often this node looks for itself while it cannot hear the others.
const POLL_WHILE_DEAF: Duration = Duration::from_secs(1);

/// In how many transactions what is due of a schedule is decided before it is deleted. They are enough for five years of every
/// second.
const ROUNDS_BEFORE_DELETION: usize = 10_000;

/// Tells whoever may want to know.
pub(crate) struct Wake {
    store: Arc<dyn Store>,
    engine: Listening,
    /// `None` where there can be no other nodes.
    others: Option<Announcer>,
    /// Who follows events here.
    happened: Arc<Notify>,
}

impl Wake {
    /// `engine` is the one of this process; other nodes are told through `store`.
    pub(crate) fn new(engine: Listening, store: &Arc<dyn Store>, happened: Arc<Notify>) -> Self {
        Self { store: store.clone(), engine, others: Announcer::start(store), happened }
    }

    /// Writes tasks, and tells who may want to know. One that can begin here and now does, and nobody needs to be told.
    pub(crate) async fn create_tasks(
        &self,
        tasks: Vec<NewTask>,
        remember: Option<Remember>,
    ) -> Result<Creation, StoreError> {
        if let ([task], None, Some(hints)) = (&tasks[..], &remember, self.engine.hints())
            && let Some(begun) = hints.begin(task).await
        {
            let task = match begun? {
                Begun::Here(task) => task,
                Begun::Elsewhere(task) => {
                    self.tasks_written([&task]);
                    task
                }
            };
            return Ok(Creation::Made(vec![Created::Fresh(task)]));
        }
        let creation = self.store.create_tasks(tasks, remember).await?;
        if let Creation::Made(made) = &creation {
            self.tasks_written(made.iter().map(Created::task));
        }
        Ok(creation)
    }

    /// Has what is due of a schedule decided now, as far as one transaction goes, and tells who may want to know.
    pub(crate) async fn settle_up(&self, id: ScheduleId, decide: &Decide<'_>) -> Result<(), StoreError> {
        let ticked = self.store.tick_schedule(id, decide).await?;
        ticked.stopped.iter().for_each(|task| self.task_cancelled(*task));
        if ticked.fired > 0 {
            self.tasks_changed();
        }
        count_fires(&ticked);
        count_ended(&*self.store, TaskStatus::Cancelled, &ticked.cancelled).await;
        Ok(())
    }

    /// Deletes a schedule, if it has this version or none is given, and tells who may want to know; `false` if there is none.
    /// What is due of it is decided first. A deletion that breaks off in between goes on there when it is asked for again.
    ///
    /// # Errors
    /// `VersionMismatch`; `Moved` for one that is some years behind.
    pub(crate) async fn delete_schedule(
        &self,
        id: ScheduleId,
        version: Option<u64>,
        rules: &FireRules,
    ) -> Result<bool, StoreError> {
        let decide = |due: &DueSchedule, now: DateTime<Utc>| {
            let decided = decide_before_deletion(due, now, rules);
            Some(decided.unwrap_or_else(|error| Tick::stop(&due.schedule, &error, rules)))
        };
        for _ in 0..ROUNDS_BEFORE_DELETION {
            match self.store.delete_schedule(id, version).await {
                Err(StoreError::Moved) => self.settle_up(id, &decide).await?,
                Err(error) => return Err(error),
                Ok(None) => return Ok(false),
                Ok(Some(cancelled)) => {
                    self.schedules_changed();
                    self.tasks_changed();
                    count_ended(&*self.store, TaskStatus::Cancelled, &cancelled).await;
                    return Ok(true);
                }
            }
        }
        Err(StoreError::Moved)
    }

    /// What the actors of this process are doing; there are none while it is paused.
    pub(crate) async fn actors(&self) -> Vec<ActorStatus> {
        match self.engine.hints() {
            Some(hints) => hints.actors().await,
            None => Vec::new(),
        }
    }

    /// These tasks were written.
    pub(crate) fn tasks_written<'t>(&self, tasks: impl IntoIterator<Item = &'t Task>) {
        if let Some(hints) = self.engine.hints() {
            let mut earliest = HashMap::new();
            for task in tasks {
                let run_at = earliest.entry(&task.topic).or_insert(task.run_at);
                *run_at = task.run_at.min(*run_at);
            }
            for (topic, run_at) in earliest {
                hints.task_written(topic.clone(), run_at);
            }
        }
        self.announce(News::of_tasks());
    }

    /// Tasks changed, nobody says which.
    pub(crate) fn tasks_changed(&self) {
        self.happened.notify_one();
        if let Some(hints) = self.engine.hints() {
            hints.tasks_written();
        }
        self.announce(News::of_tasks());
    }

    /// Tasks ended outside the engine; others may have waited for them.
    pub(crate) fn tasks_ended(&self, unblocks: bool) {
        match unblocks {
            true => self.tasks_changed(),
            false => self.happened.notify_one(),
        }
    }

    /// Schedules were written, edited or deleted.
    pub(crate) fn schedules_changed(&self) {
        if let Some(hints) = self.engine.hints() {
            hints.schedules_changed();
        }
        self.announce(News::of_schedules());
    }

    /// Definitions of topics were written or deleted.
    pub(crate) fn topics_changed(&self) {
        if let Some(hints) = self.engine.hints() {
            hints.topics_changed();
        }
        self.announce(News::of_topics());
    }

    /// Messages are due that were not.
    pub(crate) fn messages_posted(&self) {
        if let Some(hints) = self.engine.hints() {
            hints.messages_posted();
        }
        self.announce(News::of_messages());
    }

    /// A worker got a lease of that length.
    pub(crate) fn lease_made(&self, length: Duration) {
        if let Some(hints) = self.engine.hints() {
            hints.lease_made(length);
        }
    }

    /// A task was cancelled: if it runs, its attempt is told to stop.
    pub(crate) fn task_cancelled(&self, id: TaskId) {
        if let Some(hints) = self.engine.hints() {
            hints.task_cancelled(id);
        }
        self.announce(News::of_cancelled(vec![id]));
    }

    fn announce(&self, news: News) {
        if let Some(others) = &self.others {
            others.tell(news);
        }
    }
}

/// The engine of this process, as those know it who tell it things: it listens while it works, and not while paused.
#[derive(Clone, Default)]
pub(crate) struct Listening(Arc<RwLock<Option<Hints>>>);

impl Listening {
    /// From now on `hints` lead to it; `None` if it listens no more.
    pub(crate) fn set(&self, hints: Option<Hints>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = hints;
    }

    pub(crate) fn hints(&self) -> Option<Hints> {
        self.0.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Passes on what other nodes announce, until it is aborted. While they cannot be heard, it looks every second.
pub(crate) fn hear(store: Arc<dyn Store>, hints: Hints) -> Option<JoinHandle<()>> {
    store.has_other_nodes().then(|| {
        tokio::spawn(async move {
            let mut hears = true;
            loop {
                let news = match store.hear().await {
                    Ok(news) => {
                        if !std::mem::replace(&mut hears, true) {
                            info!("other nodes are heard again");
                        }
                        news
                    }
                    Err(error) => {
                        if std::mem::take(&mut hears) {
                            warn!(%error, "other nodes cannot be heard, tasks are looked for every second");
                        }
                        tokio::time::sleep(POLL_WHILE_DEAF).await;
                        News::unheard()
                    }
                };
                pass_on(&news, &hints);
            }
        })
    })
}

/// Tells the engine what another node said.
pub(crate) fn pass_on(news: &News, hints: &Hints) {
    if news.tasks {
        hints.tasks_written();
    }
    if news.schedules {
        hints.schedules_changed();
    }
    if news.topics {
        hints.topics_changed();
    }
    if news.messages {
        hints.messages_posted();
    }
    if news.leadership {
        hints.leadership_changed();
    }
    for id in &news.cancelled {
        hints.task_cancelled(*id);
    }
}
