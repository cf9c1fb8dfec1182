//! Punctual inside a program of one's own: see [`Punctual`].

mod builder;
mod error;
mod keeper;
mod new_schedule;
mod new_task;
mod transaction;

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_actors::Settings;
use punctual_domain::clock::Clock;
use punctual_domain::fire::FireRules;
use punctual_domain::id::{ScheduleId, TaskId};
use punctual_domain::invalid::Invalid;
use punctual_domain::news::News;
use punctual_domain::schedule::Schedule;
use punctual_domain::store::{Created, Creation, Page, ScheduleFilter, Store, TaskFilter, TaskWithAttempts};
use punctual_domain::task::{self, Task};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::TopicDefinition;

use crate::engine;
use crate::store_time::StoreTime;
use crate::topics::TopicDirectory;
use crate::wake::Wake;
use keeper::{Ended, Keeper};
use new_task::Rules;
use transaction::Kind;

pub use builder::Builder;
pub use error::{BuildError, Error};
pub use new_schedule::NewSchedule;
pub use new_task::NewTask;
pub use transaction::CallersTransaction;

/// How long attempts may go on after [`Punctual::stop`].
const DRAIN: Duration = Duration::from_secs(25);

/// Punctual inside a program: the scheduler without the service. Cheap to clone; all clones are the same one.
///
/// # Running tasks
///
/// [`Builder::start`] runs due tasks in this process: a handler per topic, a closure or anything that implements
/// [`Handler`](crate::Handler), and whole plugins. All promises of the service hold: a task that was written is attempted
/// at least once, whatever crashes.
///
/// ```
/// use punctual::{Attempt, NewTask, Outcome, Punctual};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (greeted, mut greetings) = tokio::sync::mpsc::unbounded_channel();
///     let punctual = Punctual::builder()
///         .database("sqlite::memory:") // or sqlite://FILE, or postgres://USER:PASSWORD@HOST/DATABASE
///         .handler("greeting.send", move |attempt: Attempt| {
///             let greeted = greeted.clone();
///             async move {
///                 let name: String = attempt.payload_as()?;
///                 greeted.send(format!("hello, {name}"))?;
///                 Ok::<_, Box<dyn std::error::Error + Send + Sync>>(Outcome::completed())
///             }
///         })
///         .start()
///         .await?;
///
///     punctual.enqueue(NewTask::new("greeting.send").payload("world")).await?;
///     assert_eq!(greetings.recv().await.unwrap(), "hello, world");
///     punctual.stop().await?;
///     Ok(())
/// }
/// ```
///
/// # One-off and recurring work
///
/// ```
/// use std::time::Duration;
/// use chrono::Utc;
/// use punctual::{NewSchedule, NewTask, Page, Punctual, TaskFilter, TaskStatus};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let punctual = Punctual::builder().database("sqlite::memory:").start().await?;
///
///     // At an instant, in the zone it is meant in.
///     let reminder = NewTask::new("notifications.task-reminder")
///         .at(Utc::now() + Duration::from_secs(3600))
///         .timezone("America/Mexico_City")
///         .payload(serde_json::json!({"userId": 7, "message": "Your task is due soon"}))
///         .metadata("ownerId", "user-7");
///     let task = punctual.schedule_at(reminder).await?.into_task();
///
///     // Again and again, by a cron expression or an interval.
///     let schedule = NewSchedule::new("agent heartbeat", "ai.agent-heartbeat").cron("0 9 * * 1-5", "America/Mexico_City");
///     let schedule = punctual.schedule_repeat(schedule).await?;
///     assert!(schedule.next_fire_at.is_some());
///
///     // What is there.
///     let of_the_user = TaskFilter { owner_id: Some("user-7".into()), ..TaskFilter::default() };
///     assert_eq!(punctual.list(&of_the_user, Page::first(20)).await?.len(), 1);
///     assert_eq!(punctual.get(task.id).await?.unwrap().task.status, TaskStatus::Pending);
///
///     // Later: another task with another id, everything that is not changed as it was.
///     let later = punctual.reschedule(task.id, |task| task.at(Utc::now() + Duration::from_secs(7200))).await?;
///     assert_eq!(later.rescheduled_from, Some(task.id));
///
///     // Not at all; no error if it has ended already.
///     assert_eq!(punctual.cancel(later.id).await?.status, TaskStatus::Cancelled);
///     assert_eq!(punctual.cancel(later.id).await?.status, TaskStatus::Cancelled);
///     punctual.stop().await?;
///     Ok(())
/// }
/// ```
///
/// # In a transaction of one's own
///
/// [`Punctual::enqueue_in`] writes a task inside a `sqlx` transaction (sqlx 0.9) on the database that Punctual uses:
/// commit makes it visible, rollback makes it never have been. What happened and what is to follow from it are then one.
///
/// On PostgreSQL the commit wakes all nodes by itself. On SQLite nobody sees it: call [`Punctual::wake`] after the commit, or
/// the task is found within a second.
///
/// ```
/// use punctual::{Attempt, NewTask, Outcome, Punctual};
/// use sqlx::SqlitePool;
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let folder = tempfile::tempdir()?;
///     let url = format!("sqlite://{}", folder.path().join("app.db").display());
///     let (sent, mut mails) = tokio::sync::mpsc::unbounded_channel();
///     let punctual = Punctual::builder()
///         .database(&url)
///         .handler("signup.welcome", move |attempt: Attempt| {
///             let sent = sent.clone();
///             async move { sent.send(attempt.payload.get().to_owned()).map(|()| Outcome::completed()) }
///         })
///         .start()
///         .await?;
///     let pool = SqlitePool::connect(&url).await?;
///     sqlx::query("CREATE TABLE users (name TEXT)").execute(&pool).await?;
///
///     // What is rolled back never was.
///     let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
///     punctual.enqueue_in(&mut transaction, NewTask::new("signup.welcome").payload("nobody")).await?;
///     transaction.rollback().await?;
///
///     let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await?;
///     sqlx::query("INSERT INTO users VALUES ('Ada')").execute(&mut *transaction).await?;
///     punctual.enqueue_in(&mut transaction, NewTask::new("signup.welcome").payload("Ada")).await?;
///     transaction.commit().await?;
///     punctual.wake();
///
///     assert_eq!(mails.recv().await.unwrap(), "\"Ada\"");
///     punctual.stop().await?;
///     assert!(mails.recv().await.is_none());
///     Ok(())
/// }
/// ```
///
/// The same on PostgreSQL:
///
/// ```
/// use punctual::{Attempt, NewTask, Outcome, Punctual};
/// use sqlx::PgPool;
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// #   let Ok(server) = std::env::var("TEST_DATABASE_URL") else { return Ok(()) };
/// #   let scratch = punctual_store::Scratch::create(&server).await?;
/// #   let url = scratch.url();
///     let (sent, mut mails) = tokio::sync::mpsc::unbounded_channel();
///     let punctual = Punctual::builder()
///         .database(url) // postgres://USER:PASSWORD@HOST/DATABASE
///         .handler("signup.welcome", move |attempt: Attempt| {
///             let sent = sent.clone();
///             async move { sent.send(attempt.payload.get().to_owned()).map(|()| Outcome::completed()) }
///         })
///         .start()
///         .await?;
///     let pool = PgPool::connect(url).await?;
///     sqlx::query("CREATE TABLE users (name text)").execute(&pool).await?;
///
///     let mut transaction = pool.begin().await?;
///     punctual.enqueue_in(&mut transaction, NewTask::new("signup.welcome").payload("nobody")).await?;
///     transaction.rollback().await?;
///
///     let mut transaction = pool.begin().await?;
///     sqlx::query("INSERT INTO users VALUES ('Ada')").execute(&mut *transaction).await?;
///     punctual.enqueue_in(&mut transaction, NewTask::new("signup.welcome").payload("Ada")).await?;
///     transaction.commit().await?;
///
///     assert_eq!(mails.recv().await.unwrap(), "\"Ada\"");
///     punctual.stop().await?;
///     assert!(mails.recv().await.is_none());
/// #   pool.close().await;
/// #   scratch.remove().await?;
///     Ok(())
/// }
/// ```
///
/// # Writing only
///
/// [`Builder::connect`] runs nothing: its tasks are for the service, or another program, on the same PostgreSQL.
///
/// ```
/// use punctual::{NewTask, Punctual};
///
/// #[tokio::main]
/// async fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let punctual = Punctual::builder().database("sqlite::memory:").connect().await?;
///     let created = punctual.enqueue_many((0..100).map(|n| NewTask::new("report.page").payload(n))).await?;
///     assert_eq!(created.len(), 100);
///     punctual.stop().await?;
///     Ok(())
/// }
/// ```
#[derive(Clone)]
pub struct Punctual(Arc<Inner>);

struct Inner {
    kind: Kind,
    /// The clock that takes the place of the database's.
    clock: Option<Arc<dyn Clock>>,
    zones: ZoneDatabase,
    /// `None` if nothing runs here.
    keeper: Option<Keeper>,
    /// `None` once it was stopped: a SQLite file then is free for others.
    open: RwLock<Option<Arc<Open>>>,
}

/// What there is until the stop.
struct Open {
    store: Arc<dyn Store>,
    topics: TopicDirectory,
    time: Arc<StoreTime>,
    wake: Wake,
}

impl Open {
    async fn write(&self, tasks: Vec<task::NewTask>) -> Result<Vec<Created>, Error> {
        match self.wake.create_tasks(tasks, None).await? {
            Creation::Made(created) => Ok(created),
            Creation::Replayed(_) => Err(Error::Broken("an answer came again that nobody asked to keep".into())),
        }
    }
}

impl Punctual {
    /// What Punctual is built of.
    pub fn builder() -> Builder {
        Builder::new()
    }

    /// Writes a task. If a live task of its topic has its dedupe key, nothing is written and that one is answered.
    ///
    /// # Errors
    /// `Invalid`, `ClientRequestIdInUse`, `Unavailable`.
    pub async fn enqueue(&self, task: NewTask) -> Result<Created, Error> {
        let open = self.open()?;
        let task = self.check(&open, task).await?;
        only(open.write(vec![task]).await?)
    }

    /// Writes tasks, all or none, and answers what became of each, in order.
    ///
    /// # Errors
    /// As [`Punctual::enqueue`]; bad fields are named `tasks[3].priority`.
    pub async fn enqueue_many(&self, tasks: impl IntoIterator<Item = NewTask>) -> Result<Vec<Created>, Error> {
        let open = self.open()?;
        let topics = open.topics.definitions().await?;
        let rules = self.rules(&open, &topics);
        let mut invalid = Invalid::default();
        let mut checked = Vec::new();
        for (i, task) in tasks.into_iter().enumerate() {
            match task.check(&rules) {
                Ok(task) => checked.push(task),
                Err(Invalid(errors)) => {
                    errors
                        .into_iter()
                        .for_each(|error| invalid.add(format!("tasks[{i}].{}", error.field), error.message));
                }
            }
        }
        open.write(invalid.or(checked)?).await
    }

    /// Writes a task that is due at an instant: one made with [`NewTask::at`] and [`NewTask::timezone`].
    ///
    /// # Errors
    /// As [`Punctual::enqueue`].
    pub async fn schedule_at(&self, task: NewTask) -> Result<Created, Error> {
        if !task.has_instant() {
            let mut invalid = Invalid::default();
            invalid.add("runAt", "is required: say when with NewTask::at");
            return Err(invalid.into());
        }
        self.enqueue(task).await
    }

    /// Writes a task in the caller's own transaction: commit makes it visible, rollback makes it never have been.
    ///
    /// On PostgreSQL the commit wakes all nodes. On SQLite call [`Punctual::wake`] after it; begin the transaction with
    /// `BEGIN IMMEDIATE`, and keep it short: while it is open nobody else can write, [`Punctual::enqueue`] included.
    ///
    /// # Errors
    /// `Invalid`, `ClientRequestIdInUse`, `WrongDatabase`: the transaction is as it was. `Unavailable`: roll it back.
    pub async fn enqueue_in<T: CallersTransaction>(
        &self,
        transaction: &mut T,
        task: NewTask,
    ) -> Result<Created, Error> {
        if T::KIND != self.0.kind {
            return Err(Error::WrongDatabase { given: T::KIND.name(), ours: self.0.kind.name() });
        }
        let open = self.open()?;
        let task = self.check(&open, task).await?;
        only(transaction.insert(&*open.store, self.given_instant(), vec![task]).await?)
    }

    /// Says that a transaction with tasks in it was committed. A hint: without it they are found within a second.
    pub fn wake(&self) {
        if let Ok(open) = self.open() {
            open.wake.tasks_changed();
        }
    }

    /// One task, with its attempts; `None` if there is no such task.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn get(&self, id: TaskId) -> Result<Option<TaskWithAttempts>, Error> {
        Ok(self.open()?.store.task(id).await?)
    }

    /// Tasks that match, newest first. The next page begins after the last one's id; a page shorter than asked for is the
    /// last.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn list(&self, filter: &TaskFilter, page: Page<TaskId>) -> Result<Vec<Task>, Error> {
        Ok(self.open()?.store.tasks(filter, page).await?)
    }

    /// Ends a live task as cancelled, also while it runs; an ended one stays as it is. Answers the task as it stands.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    pub async fn cancel(&self, id: TaskId) -> Result<Task, Error> {
        let open = self.open()?;
        let task = open.store.cancel(id, None).await?.into_made()?;
        if task.status == task::TaskStatus::Cancelled {
            open.wake.task_cancelled(id);
            // Others of its serial key may have waited for it.
            open.wake.tasks_changed();
        }
        Ok(task)
    }

    /// Cancels a live task and writes another in its place, with another id. `change` gets it as it was, without its client
    /// request id, and says what is different.
    ///
    /// # Errors
    /// `NotFound`, `AlreadyEnded`, `Invalid`, `ClientRequestIdInUse`, `DedupeKeyInUse` (by a third task), `Unavailable`.
    pub async fn reschedule(&self, id: TaskId, change: impl FnOnce(NewTask) -> NewTask) -> Result<Task, Error> {
        let open = self.open()?;
        let old = self.get(id).await?.ok_or(Error::NotFound)?.task;
        if old.status.has_ended() {
            return Err(Error::AlreadyEnded);
        }
        let replacement = self.check(&open, change(NewTask::like(&old))).await?;
        let task = open.store.reschedule(id, replacement, None).await?.into_made()?;
        open.wake.task_cancelled(id);
        open.wake.tasks_changed();
        Ok(task)
    }

    /// Writes a new task like a failed one, due now. If its dedupe key belongs to a live task by now, answers that one.
    ///
    /// # Errors
    /// `NotFound`, `NotFailed`, `Unavailable`.
    pub async fn retry(&self, id: TaskId) -> Result<Created, Error> {
        let open = self.open()?;
        let created = open.store.retry(id, None).await?.into_made()?;
        open.wake.tasks_changed();
        Ok(created)
    }

    /// Writes a schedule, enabled, with its first instant after now. Its fires make tasks as long as a process runs that was
    /// started, this or another: of several, one evaluates schedules, and each instant fires once whoever does.
    ///
    /// # Errors
    /// `Invalid`, `NameTaken`, `ClientRequestIdInUse`, `Unavailable`.
    pub async fn schedule_repeat(&self, schedule: NewSchedule) -> Result<Schedule, Error> {
        let open = self.open()?;
        let schedule = schedule.check(&self.0.zones, open.store.now().await?)?;
        let schedule = open.store.create_schedule(&schedule, None).await?.into_made()?;
        open.wake.schedules_changed();
        Ok(schedule)
    }

    /// One schedule; `None` if there is no such schedule.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn schedule(&self, id: ScheduleId) -> Result<Option<Schedule>, Error> {
        Ok(self.open()?.store.schedule(id).await?)
    }

    /// Schedules that match, newest first.
    ///
    /// # Errors
    /// `Unavailable`.
    pub async fn schedules(&self, filter: &ScheduleFilter, page: Page<ScheduleId>) -> Result<Vec<Schedule>, Error> {
        Ok(self.open()?.store.schedules(filter, page).await?)
    }

    /// Deletes a schedule and cancels its pending tasks; running ones finish. What was due of it ends as a fire, or as skipped
    /// with a reason.
    ///
    /// # Errors
    /// `NotFound`, `Unavailable`.
    pub async fn delete_schedule(&self, id: ScheduleId) -> Result<(), Error> {
        let misfire_threshold = TimeDelta::from_std(Settings::default().misfire_threshold).unwrap_or(TimeDelta::MAX);
        let rules = FireRules { zones: self.0.zones.clone(), misfire_threshold };
        match self.open()?.wake.delete_schedule(id, None, &rules).await? {
            true => Ok(()),
            false => Err(Error::NotFound),
        }
    }

    /// Stops as [`Punctual::drain`] does, with 25 seconds for attempts under way.
    ///
    /// # Errors
    /// `GaveUp`.
    pub async fn stop(&self) -> Result<(), Error> {
        self.drain(DRAIN).await
    }

    /// Claims nothing more, lets attempts finish until `within` has passed, hands the rest back without using up an attempt,
    /// and leaves the database in good order. Afterwards every call is `Unavailable`.
    ///
    /// # Errors
    /// `GaveUp`, if the actors had given up before.
    pub async fn drain(&self, within: Duration) -> Result<(), Error> {
        if let Ok(open) = self.open()
            && open.store.has_other_nodes()
        {
            // What the announcer still has in hand would not be announced any more; it is only a hint.
            let _ = open.store.announce(&News { schedules: true, ..News::of_tasks() }).await;
        }
        let ended = match (&self.0.keeper, self.open()) {
            (Some(keeper), _) => outcome(keeper.stop(within).await),
            (None, Ok(open)) => {
                engine::close(&*open.store).await;
                Ok(())
            }
            (None, Err(_)) => Ok(()),
        };
        *self.0.open.write().unwrap_or_else(PoisonError::into_inner) = None;
        ended
    }

    /// Returns once nothing runs here any more: after a stop, or when the actors failed more often than can be put right from
    /// inside. Never, if nothing ran here.
    ///
    /// # Errors
    /// `GaveUp`: start again, or end the program so that it is started again.
    pub async fn stopped(&self) -> Result<(), Error> {
        match &self.0.keeper {
            Some(keeper) => outcome(keeper.ended().await),
            None => std::future::pending().await,
        }
    }

    fn open(&self) -> Result<Arc<Open>, Error> {
        let open = self.0.open.read().unwrap_or_else(PoisonError::into_inner);
        open.clone().ok_or_else(|| Error::Unavailable("Punctual was stopped".into()))
    }

    async fn check(&self, open: &Open, task: NewTask) -> Result<task::NewTask, Error> {
        let topics = open.topics.definitions().await?;
        Ok(task.check(&self.rules(open, &topics))?)
    }

    fn rules<'a>(&'a self, open: &Open, topics: &'a [TopicDefinition]) -> Rules<'a> {
        Rules { zones: &self.0.zones, topics, now: open.time.now() }
    }

    /// The instant that takes the place of the database's, for tests that move time.
    fn given_instant(&self) -> Option<DateTime<Utc>> {
        self.0.clock.as_ref().map(|clock| clock.now())
    }
}

fn outcome(ended: Ended) -> Result<(), Error> {
    match ended {
        Ended::Stopped => Ok(()),
        Ended::GaveUp => Err(Error::GaveUp),
    }
}

/// The one that became of one.
fn only(mut created: Vec<Created>) -> Result<Created, Error> {
    created.pop().ok_or_else(|| Error::Broken("a task was neither written nor found".into()))
}
