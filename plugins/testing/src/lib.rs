//! Runs a plugin on the real engine inside a test: the actors that run it in the service, a SQLite database in memory or
//! PostgreSQL, and a clock that only the test moves.
//!
//! ```
//! use punctual_sdk::{Attempt, Handler, Outcome, Plugin};
//! use punctual_testing::TaskStatus;
//!
//! struct Greeting;
//!
//! impl Plugin for Greeting {
//!     fn name(&self) -> &'static str {
//!         "greeting"
//!     }
//!
//!     fn handlers(&self) -> Vec<(&'static str, Box<dyn Handler>)> {
//!         vec![("greeting.say", Box::new(say))]
//!     }
//! }
//!
//! async fn say(attempt: Attempt) -> Result<Outcome, serde_json::Error> {
//!     let name: String = attempt.payload_as()?;
//!     Ok(Outcome::completed_with(format!("hello, {name}")))
//! }
//!
//! # #[tokio::main]
//! # async fn main() {
//! let punctual = punctual_testing::start(Greeting).await;
//! let task = punctual.run("greeting.say", "Ada").await;
//! assert_eq!((task.status, task.result), (TaskStatus::Completed, "hello, Ada".into()));
//! # }
//! ```
//!
//! Nothing hangs: a task that does not get on within ten seconds of real time fails the test, with what is known about it. A
//! handler's panic is the error of its task.
#![deny(missing_docs)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use punctual_actors::{Deps, Handlers, Running, Settings, add_schedules, add_topics};
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::coordination::Alone;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::outbox::{self, MessageStatus};
use punctual_domain::store::{Page, Reply, Span, Store, TaskFilter};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::{Topic, TopicPattern};
use punctual_sdk::engine::{self, Engine};
use punctual_sdk::sqlx::{self, AssertSqlSafe};
use punctual_sdk::{Context, Database, Either, Method, NewTask, Plugin, Route};
use serde::Serialize;
use serde_json::Value;
use tokio::time::Instant;
use uuid::Uuid;

mod call;
mod database;
mod logs;
mod post;
mod task;

pub use call::Response;
pub use database::{TestDatabase, on_postgres, on_sqlite};
pub use logs::{logged, logs};
pub use post::Message;
pub use punctual_domain::schedule::Schedule;
pub use punctual_domain::task::{AttemptOutcome, TaskStatus};
pub use task::Task;

use post::Post;

/// How long, in real time, a task may take to get on, where nobody said otherwise.
const PATIENCE: Duration = Duration::from_secs(10);

/// Where the clock stands at first.
const FIRST_INSTANT: &str = "2026-01-01T00:00:00Z";

/// A node with one plugin.
pub struct Punctual {
    store: Arc<dyn Store>,
    clock: FakeClock,
    tree: Running,
    /// What the plugin serves or listens to.
    topics: Vec<TopicPattern>,
    post: Post,
    patience: Duration,
    engine: Arc<dyn Engine>,
    plugin: &'static str,
    routes: Vec<Route>,
    /// Its files stay as long as the node.
    _database: TestDatabase,
}

/// Starts a node with one plugin, its migrations applied, on a SQLite database in memory. The clock stands at the beginning
/// of 2026.
///
/// # Panics
/// When the service would refuse the plugin too.
pub async fn start(plugin: impl Plugin + 'static) -> Punctual {
    setup(plugin).start().await
}

/// A node with one plugin, before it starts: [`start`] with more to say.
pub fn setup(plugin: impl Plugin + 'static) -> Setup {
    Setup {
        plugin: Box::new(plugin),
        database: TestDatabase::default(),
        at: FIRST_INSTANT.to_owned(),
        settings: BTreeMap::new(),
    }
}

/// What a node is started with.
#[must_use]
pub struct Setup {
    plugin: Box<dyn Plugin>,
    database: TestDatabase,
    at: String,
    settings: BTreeMap<String, String>,
}

impl Setup {
    /// On this database; one that other nodes of the test may use too.
    pub fn database(self, database: TestDatabase) -> Self {
        Self { database, ..self }
    }

    /// With the clock at this instant.
    pub fn at(self, at: &str) -> Self {
        Self { at: at.to_owned(), ..self }
    }

    /// With something that the configuration says, by the name of its variable.
    pub fn setting(mut self, variable: &str, value: &str) -> Self {
        self.settings.insert(variable.to_owned(), value.to_owned());
        self
    }

    /// Starts it.
    ///
    /// # Panics
    /// When the service would refuse the plugin too.
    pub async fn start(self) -> Punctual {
        let Self { plugin, database, at, settings } = self;
        // From the first line on.
        logs();
        // As the service does for whoever calls somebody over HTTP.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let clock = FakeClock::at_text(&at);
        let options = punctual_store::Options { clock: Some(Arc::new(clock.clone())), ..Default::default() };
        let store = punctual_store::connect(&database.0.url(), options).await.expect("a database");
        if let Err(refused) = store.migrate_plugin(plugin.name(), &plugin.migrations()).await {
            panic!("{refused}");
        }
        let mut topics = Vec::new();
        let zones = ZoneDatabase::bundled();
        add_topics(&*store, &*plugin).await.expect("the topics that the plugin brings are written");
        for (topic, _) in plugin.handlers() {
            let topic: TopicPattern = topic.parse().unwrap_or_else(|refused| panic!("{refused}"));
            topics.push(topic.clone());
            store.register_topic(&topic).await.expect("the topic is written");
        }
        let added = add_schedules(&*store, &zones, clock.now(), &*plugin).await;
        added.expect("the schedules that the plugin brings are written");
        topics.extend(plugin.listeners().into_iter().map(|(topics, _)| TopicPattern::from_stored(topics)));
        for template in plugin.templates() {
            if let Err(refused) = template.preview() {
                panic!("{refused}");
            }
        }
        for route in plugin.routes() {
            if let Err(refused) = route.check() {
                panic!("{refused}");
            }
        }
        let post = Post::default();
        let deps = Deps {
            store: store.clone(),
            clock: Arc::new(clock.clone()),
            zones,
            coordination: Arc::new(Alone),
            node: NodeId::generate(),
            handlers: Handlers::of([&*plugin]).with_settings(settings),
            transports: post.transports(),
            alerts: Vec::new(),
            settings: Settings::default(),
            happened: Arc::default(),
        };
        let tree = punctual_actors::start(deps.clone()).await.expect("the actors start");
        let hints = tree.hints();
        let engine = punctual_actors::plugin_engine(&deps, move || Some(hints.clone()));
        Punctual {
            store,
            clock,
            tree,
            topics,
            post,
            patience: PATIENCE,
            engine,
            plugin: plugin.name(),
            routes: plugin.routes(),
            _database: database,
        }
    }
}

impl Punctual {
    /// With another limit, in real time, for a task to get on.
    pub fn with_patience(self, patience: Duration) -> Self {
        Self { patience, ..self }
    }

    /// Writes a task that is due at once, and waits until it has ended or was put off.
    ///
    /// # Panics
    /// When the task cannot be written, or does neither in time.
    pub async fn run(&self, topic: &str, payload: impl Serialize) -> Task {
        let id = self.enqueue(NewTask::new(topic).payload(payload)).await;
        self.task(id).await
    }

    /// Writes a task, and answers its id.
    ///
    /// # Panics
    /// When the task is refused, or the plugin has neither handler nor listener for its topic.
    pub async fn enqueue(&self, task: NewTask) -> Uuid {
        let topic = Topic::from_stored(&*task.topic);
        let served: Vec<_> = self.topics.iter().map(TopicPattern::as_str).collect();
        assert!(
            self.topics.iter().any(|pattern| pattern.matches(&topic)),
            "the plugin has no handler or listener for the topic {topic}, but for {served:?}"
        );
        let id = self.database().enqueue(task).await.unwrap_or_else(|refused| panic!("{refused}"));
        self.tree.hints().tasks_written();
        id
    }

    /// The task, once it has ended or is put off to an instant that the clock has not reached.
    ///
    /// # Panics
    /// When there is no such task, or it does neither in time.
    pub async fn task(&self, id: Uuid) -> Task {
        self.until(|| async {
            let found = self.store.task(TaskId(id)).await.expect("the store answers");
            let task = Task::of(found.unwrap_or_else(|| panic!("there is no task {id}")));
            let waits = task.status == TaskStatus::Pending && task.run_at > self.now();
            if waits || task.status.has_ended() { Ok(task) } else { Err(vec![task]) }
        })
        .await
    }

    /// Retries a failed task as the API does: a new one like it is due at once. Answers that one, as [`task`](Self::task) does.
    ///
    /// # Panics
    /// When the task has not failed, or as [`task`](Self::task).
    pub async fn retry(&self, id: Uuid) -> Task {
        let made = self.store.retry(TaskId(id), None).await.and_then(Reply::into_made);
        let made = made.unwrap_or_else(|refused| panic!("{refused}"));
        self.tree.hints().tasks_written();
        self.task(made.task().id.0).await
    }

    /// Calls a route of the plugin that looks, by its path behind the plugin's own.
    ///
    /// # Panics
    /// When there is no such route, or it answers what it does not say.
    pub async fn get(&self, path: &str) -> Response {
        self.call(Method::Get, path, Value::Null, None).await
    }

    /// Calls a route that makes or does something.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub async fn post(&self, path: &str, body: Value) -> Response {
        self.call(Method::Post, path, body, None).await
    }

    /// Calls a route that replaces.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub async fn put(&self, path: &str, body: Value) -> Response {
        self.call(Method::Put, path, body, None).await
    }

    /// Calls a route that merges.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub async fn patch(&self, path: &str, body: Value) -> Response {
        self.call(Method::Patch, path, body, None).await
    }

    /// Calls a route that deletes.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub async fn delete(&self, path: &str) -> Response {
        self.call(Method::Delete, path, Value::Null, None).await
    }

    /// Calls a route, perhaps under an `Idempotency-Key`, which only counts where the route keeps its answer in its own
    /// transaction.
    ///
    /// # Panics
    /// As [`get`](Self::get).
    pub async fn call(&self, method: Method, path: &str, body: Value, key: Option<&str>) -> Response {
        let routes = (self.plugin, self.routes.as_slice());
        call::call(routes, &self.engine, self.now(), (method, path, body), key).await
    }

    /// The schedule of that name.
    ///
    /// # Panics
    /// When there is none.
    pub async fn schedule(&self, name: &str) -> Schedule {
        let found = self.store.schedule_by_name(name).await.expect("the store answers");
        found.unwrap_or_else(|| panic!("there is no schedule {name}"))
    }

    /// All tasks of a topic, oldest first, whatever became of them.
    pub async fn tasks(&self, topic: &str) -> Vec<Task> {
        let filter = TaskFilter { topic: Some(Topic::from_stored(topic)), ..TaskFilter::default() };
        let found = self.store.tasks(&filter, Page::first(1000)).await.expect("the store answers");
        found.into_iter().rev().map(Task::without_attempts).collect()
    }

    /// The messages that were sent, in order, once none is on its way any more.
    ///
    /// # Panics
    /// When one is on its way for too long.
    pub async fn messages(&self) -> Vec<Message> {
        self.until(|| async {
            let pending = self.store.messages(Some(MessageStatus::Pending), Page::first(1000)).await;
            let is_due = |message: &outbox::Message| message.error.is_none() || message.next_attempt_at <= self.now();
            if pending.expect("the store answers").iter().any(is_due) { Err(Vec::new()) } else { Ok(()) }
        })
        .await;
        self.post.sent()
    }

    /// From now on no message can be sent, for this reason, or all can again.
    pub fn fail_messages(&self, error: Option<&str>) {
        self.post.fail(None, error);
    }

    /// From now on no message to this recipient can be sent, for this reason, and all others can.
    pub fn fail_messages_to(&self, recipient: &str, error: &str) {
        self.post.fail(Some(recipient), Some(error));
    }

    /// Moves the clock, from one instant at which a task, a message or a schedule is due to the next, and waits at each until nothing is
    /// due or running any more.
    ///
    /// # Panics
    /// When that is not so in time.
    pub async fn advance(&self, by: Duration) {
        let until = self.after(by);
        loop {
            self.quiet().await;
            let task = self.store.next_due_at(self.now()).await.expect("the store answers");
            let message = self.store.next_message_at(&["email", "webhook", "queue"]).await.expect("the store answers");
            let tick = self.store.next_tick_at().await.expect("the store answers").fire_at;
            match [task, message, tick].into_iter().flatten().min().filter(|next| *next <= until) {
                Some(next) => self.clock.advance_to(next),
                None => break,
            }
        }
        self.clock.advance_to(until);
        self.quiet().await;
    }

    /// Moves the clock in one leap, as if the node had slept: what was due meanwhile is late. Waits until nothing is due or running
    /// any more.
    ///
    /// # Panics
    /// As [`advance`](Self::advance).
    pub async fn oversleep(&self, by: Duration) {
        self.quiet().await;
        self.clock.advance_to(self.after(by));
        self.quiet().await;
    }

    fn after(&self, by: Duration) -> DateTime<Utc> {
        self.now() + TimeDelta::from_std(by).expect("a time that the calendar can hold")
    }

    /// From now on no task of this topic can be written, as if the database refused it, or all can again.
    ///
    /// # Panics
    /// When the database does not do it.
    pub async fn refuse_tasks(&self, topic: Option<&str>) {
        let drop = "DROP TRIGGER IF EXISTS testing_refuse";
        let (sqlite, postgres) = match topic {
            None => (drop.to_owned(), format!("{drop} ON punctual_tasks")),
            Some(topic) => (
                format!(
                    "CREATE TRIGGER testing_refuse BEFORE INSERT ON punctual_tasks WHEN NEW.topic = '{topic}'
                     BEGIN SELECT RAISE(ABORT, 'refused by the test'); END"
                ),
                format!(
                    "CREATE OR REPLACE FUNCTION testing_refuse() RETURNS trigger LANGUAGE plpgsql AS
                     $$ BEGIN RAISE EXCEPTION 'refused by the test'; END $$;
                     CREATE TRIGGER testing_refuse BEFORE INSERT ON punctual_tasks FOR EACH ROW
                     WHEN (NEW.topic = '{topic}') EXECUTE FUNCTION testing_refuse()"
                ),
            ),
        };
        self.execute(sqlite, postgres).await;
    }

    /// Runs statements past the plugin, one for each database.
    ///
    /// # Panics
    /// When they fail.
    pub async fn execute(&self, sqlite: impl Into<String>, postgres: impl Into<String>) {
        let mut transaction = self.database().begin().await.expect("the database is there");
        let done = match transaction.either() {
            Either::Sqlite(connection) => {
                sqlx::raw_sql(AssertSqlSafe(sqlite.into())).execute(connection).await.map(drop)
            }
            Either::Postgres(connection) => {
                sqlx::raw_sql(AssertSqlSafe(postgres.into())).execute(connection).await.map(drop)
            }
        };
        done.expect("the statements are right");
        transaction.commit().await.expect("the database is there");
    }

    /// Does something while a transaction with these statements is open, which is committed once that waits for it, or has
    /// ended. On SQLite, where one writes at a time, it comes after the commit.
    ///
    /// # Panics
    /// When the statements fail, or nothing moves in time.
    pub async fn meanwhile<T>(&self, statements: impl Into<String>, work: impl Future<Output = T>) -> T {
        let mut transaction = self.database().begin().await.expect("the database is there");
        let statements = AssertSqlSafe(statements.into());
        let pid: i32 = match transaction.either() {
            Either::Sqlite(connection) => {
                sqlx::raw_sql(statements).execute(connection).await.expect("the statements are right");
                transaction.commit().await.expect("the database is there");
                return work.await;
            }
            Either::Postgres(connection) => {
                sqlx::raw_sql(statements).execute(&mut *connection).await.expect("the statements are right");
                sqlx::query_scalar("SELECT pg_backend_pid()").fetch_one(connection).await.expect("the server answers")
            }
        };
        let waits = self.until(|| async {
            let count = "SELECT count(*) FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid))";
            let Either::Postgres(pool) = self.database().either() else { return Ok(()) };
            let waiting: i64 = sqlx::query_scalar(count).bind(pid).fetch_one(pool).await.expect("the server answers");
            if waiting > 0 { Ok(()) } else { Err(Vec::new()) }
        });
        tokio::pin!(work);
        tokio::select! {
            done = &mut work => {
                transaction.commit().await.expect("the database is there");
                done
            }
            () = waits => {
                transaction.commit().await.expect("the database is there");
                work.await
            }
        }
    }

    /// What the plugin may use of the node.
    pub fn context(&self) -> Context {
        engine::context(self.plugin, Arc::clone(&self.engine))
    }

    /// What the clock shows.
    pub fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// The database, to look into the plugin's tables.
    pub fn database(&self) -> &Database {
        self.store.database()
    }

    /// Stops the node in order. A test that just ends is as good, unless it looks at what happens then.
    pub async fn stop(self) {
        self.tree.drain(PATIENCE).await.expect("the actors were well");
    }

    /// Waits until nothing is due or running.
    async fn quiet(&self) {
        self.until(|| async {
            let tick = self.store.next_tick_at().await.expect("the store answers").fire_at;
            if tick.is_some_and(|tick| tick <= self.now()) { Err(Vec::new()) } else { Ok(()) }
        })
        .await;
        self.messages().await;
        self.until(|| async {
            // Both in one look: a task moves from one to the other at any time. What runs was due.
            let unfinished = TaskFilter {
                status: vec![TaskStatus::Pending, TaskStatus::Running],
                run_at: Span { from: None, to: Some(self.now() + TimeDelta::microseconds(1)) },
                ..TaskFilter::default()
            };
            let busy = self.store.tasks(&unfinished, Page::first(10)).await.expect("the store answers");
            if busy.is_empty() { Ok(()) } else { Err(busy.into_iter().map(Task::without_attempts).collect()) }
        })
        .await;
    }

    /// Looks at the store again and again: what counts is what is written there, by whomever.
    async fn until<T, F: Future<Output = Result<T, Vec<Task>>>>(&self, look: impl Fn() -> F) -> T {
        let begun_at = Instant::now();
        loop {
            match look().await {
                Ok(seen) => return seen,
                Err(unfinished) if begun_at.elapsed() > self.patience => {
                    let (patience, now) = (self.patience, self.now());
                    panic!(
                        "nothing moved within {patience:?}; the clock shows {now}, and these are due or run: {unfinished:#?}"
                    );
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(1)).await,
            }
        }
    }
}
