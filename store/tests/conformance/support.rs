//! What every behaviour needs: a fresh database, a clock that is moved by hand, and short words for the usual moves.

use std::collections::BTreeMap;
use std::env;
use std::future::Future;
use std::ops::Deref;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use punctual_domain::clock::{Clock, FakeClock};
use punctual_domain::fire::{FireRules, decide};
use punctual_domain::id::{Epoch, NodeId, ScheduleId, TaskId};
use punctual_domain::json::Json;
use punctual_domain::schedule::{Definition, Rhythm, Schedule};
use punctual_domain::store::{
    ClaimRequest, Created, Creation, Extension, Page, Settled, Settling, Store, StoreError, Suspects, TaskFilter,
    Ticked, Want,
};
use punctual_domain::task::{AttemptOutcome, AttemptRecord, Due, FireOfTask, NewTask, Settlement, Task, TaskStatus};
use punctual_domain::time::ZoneDatabase;
use punctual_domain::topic::Topic;
use punctual_store::{ConnectError, Options, connect};
use sqlx::{AssertSqlSafe, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;
use uuid::Uuid;

/// How long leases last where the behaviour does not care.
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// The instant at which every behaviour begins.
pub(crate) const BEGINNING: &str = "2026-03-02T12:00:00Z";

static ZONES: LazyLock<ZoneDatabase> = LazyLock::new(ZoneDatabase::bundled);

/// Runs a behaviour on a fresh SQLite file.
pub(crate) fn on_sqlite<B: Future<Output = ()>>(behaviour: impl FnOnce(World) -> B) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    run(Database::sqlite(&folder, "punctual.db"), behaviour);
}

/// Runs a behaviour in a fresh schema of the PostgreSQL server at `TEST_DATABASE_URL`.
///
/// A schema, not a database: making and dropping one costs a third.
pub(crate) fn on_postgres<B: Future<Output = ()>>(behaviour: impl FnOnce(World) -> B) {
    let Some(server) = postgres_server() else { return };
    let schema = format!("conformance_{}", Uuid::now_v7().simple());
    let database = Database::Postgres { server, schema };
    block_on(database.create());
    let dropped_at_the_end = DropOnDrop(database.clone());
    run(database, behaviour);
    drop(dropped_at_the_end);
}

/// The server for tests; without one it says so, and fails where nothing may be skipped.
pub(crate) fn postgres_server() -> Option<String> {
    let server = env::var("TEST_DATABASE_URL").ok().filter(|url| !url.is_empty());
    if server.is_none() {
        println!("skipped: TEST_DATABASE_URL is not set");
        assert!(env::var_os("CI").is_none(), "CI skips no database: set TEST_DATABASE_URL");
    }
    server
}

/// Runs a future on a runtime of its own, which is gone, with all its connections, before this returns.
pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(4).enable_all().build().expect("a runtime");
    match runtime.block_on(AssertUnwindSafe(future).catch_unwind()) {
        Ok(value) => value,
        Err(panic) => {
            // Whatever the future left running must not hold locks while the database is cleaned up.
            runtime.shutdown_background();
            resume_unwind(panic)
        }
    }
}

fn run<B: Future<Output = ()>>(database: Database, behaviour: impl FnOnce(World) -> B) {
    block_on(async move {
        let clock = FakeClock::at_text(BEGINNING);
        let world = World::open(database, Some(clock.clone()), clock).await.expect("a store on a fresh database");
        behaviour(world).await;
    });
}

/// Drops a schema when the test is over, however it ended.
struct DropOnDrop(Database);

impl Drop for DropOnDrop {
    fn drop(&mut self) {
        block_on(self.0.remove());
    }
}

/// Where a test's data is.
#[derive(Clone)]
pub(crate) enum Database {
    /// A file.
    Sqlite {
        /// Its URL.
        url: String,
    },
    /// A schema of a server.
    Postgres {
        /// The URL of the server.
        server: String,
        /// The schema's name.
        schema: String,
    },
}

impl Database {
    /// A file in `folder`, not made yet.
    pub(crate) fn sqlite(folder: &TempDir, file: &str) -> Self {
        Self::Sqlite { url: format!("sqlite://{}", folder.path().join(file).display()) }
    }

    /// The URL that leads `connect` to it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { url } => url.clone(),
            Self::Postgres { server, schema } => {
                let separator = if server.contains('?') { '&' } else { '?' };
                format!("{server}{separator}options=-csearch_path%3D{schema}")
            }
        }
    }

    /// An empty database beside this one, removed together with it.
    pub(crate) async fn empty_sibling(&self) -> Self {
        let sibling = match self {
            Self::Sqlite { url } => Self::Sqlite { url: format!("{url}.sibling") },
            Self::Postgres { server, schema } => {
                Self::Postgres { server: server.clone(), schema: format!("{schema}_b") }
            }
        };
        sibling.create().await;
        sibling
    }

    /// Runs statements, past the store.
    pub(crate) async fn execute(&self, sql: &'static str) {
        match self {
            Self::Sqlite { .. } => {
                sqlx::raw_sql(sql).execute(&mut self.sqlite_connection().await).await.unwrap();
            }
            Self::Postgres { .. } => {
                sqlx::raw_sql(sql).execute(&mut self.postgres_connection().await).await.unwrap();
            }
        }
    }

    /// How many rows a table has, looked up past the store.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        match self {
            Self::Sqlite { .. } => {
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut self.sqlite_connection().await).await.unwrap()
            }
            Self::Postgres { .. } => {
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut self.postgres_connection().await).await.unwrap()
            }
        }
    }

    async fn create(&self) {
        match self {
            // A file without bytes is an empty database.
            Self::Sqlite { url } => std::fs::write(url.trim_start_matches("sqlite://"), "").unwrap(),
            Self::Postgres { schema, .. } => {
                let sql = format!("CREATE SCHEMA {schema}");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.postgres_connection().await).await.unwrap();
            }
        }
    }

    async fn remove(&self) {
        if let Self::Postgres { schema, .. } = self {
            let sql = format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS {schema}, {schema}_b CASCADE");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.postgres_connection().await).await.unwrap();
        }
    }

    async fn sqlite_connection(&self) -> SqliteConnection {
        SqliteConnection::connect(&self.url()).await.expect("the file")
    }

    async fn postgres_connection(&self) -> PgConnection {
        PgConnection::connect(&self.url()).await.expect("the server at TEST_DATABASE_URL")
    }
}

/// How a caller's own transaction ends.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    Commit,
    RollBack,
}

/// A store on a fresh database, as one node has it, and the clock it goes by.
pub(crate) struct World {
    node: NodeStore,
    /// The clock of every store that this world opened, unless it was reopened on the database's own.
    pub(crate) clock: FakeClock,
    /// Where the data is.
    pub(crate) database: Database,
}

impl Deref for World {
    type Target = NodeStore;

    fn deref(&self) -> &NodeStore {
        &self.node
    }
}

impl World {
    async fn open(database: Database, store_clock: Option<FakeClock>, clock: FakeClock) -> Result<Self, ConnectError> {
        let store = connect(&database.url(), options(store_clock)).await?;
        Ok(Self { node: NodeStore { id: NodeId::generate(), store }, clock, database })
    }

    /// What the clock shows.
    pub(crate) fn now(&self) -> DateTime<Utc> {
        self.clock.now()
    }

    /// Moves the clock.
    pub(crate) fn advance(&self, by: TimeDelta) {
        self.clock.advance(by);
    }

    /// Moves the clock by whole seconds.
    pub(crate) fn advance_secs(&self, seconds: i64) {
        self.advance(TimeDelta::seconds(seconds));
    }

    /// The instant so many seconds from now.
    pub(crate) fn in_secs(&self, seconds: i64) -> DateTime<Utc> {
        self.now() + TimeDelta::seconds(seconds)
    }

    /// Another node: on PostgreSQL with connections of its own, on SQLite, which serves one process, with the same store.
    pub(crate) async fn another_node(&self) -> NodeStore {
        let store = match &self.database {
            Database::Sqlite { .. } => self.store.clone(),
            Database::Postgres { .. } => {
                let options = Options { connections: 3, ..options(Some(self.clock.clone())) };
                connect(&self.database.url(), options).await.expect("another store")
            }
        };
        NodeStore { id: NodeId::generate(), store }
    }

    /// Eight nodes, this one not among them.
    pub(crate) async fn eight_nodes(&self) -> Vec<NodeStore> {
        let mut nodes = Vec::new();
        for _ in 0..8 {
            nodes.push(self.another_node().await);
        }
        nodes
    }

    /// Drops the store and connects again: a restart, and another node.
    pub(crate) async fn reopen(self) -> Self {
        let Self { node, clock, database } = self;
        drop(node);
        Self::open(database, Some(clock.clone()), clock).await.expect("the store opens again")
    }

    /// Drops the store and connects again without a clock that takes the place of the database's own.
    pub(crate) async fn reopen_on_the_databases_clock(self) -> Self {
        let Self { node, clock, database } = self;
        drop(node);
        Self::open(database, None, clock).await.expect("the store opens again")
    }

    /// Drops the store, and leaves the database.
    pub(crate) fn close(self) -> Database {
        self.database
    }

    /// Writes tasks in a transaction of the caller's own, and ends it.
    pub(crate) async fn insert_in_own_transaction(&self, tasks: Vec<NewTask>, end: End) {
        match &self.database {
            Database::Sqlite { .. } => {
                let mut connection = self.database.sqlite_connection().await;
                let mut transaction = connection.begin_with("BEGIN IMMEDIATE").await.unwrap();
                punctual_store::sqlite::insert_tasks(&mut transaction, tasks, self.now()).await.unwrap();
                match end {
                    End::Commit => transaction.commit().await.unwrap(),
                    End::RollBack => transaction.rollback().await.unwrap(),
                }
            }
            Database::Postgres { .. } => {
                let mut connection = self.database.postgres_connection().await;
                let mut transaction = connection.begin().await.unwrap();
                punctual_store::postgres::insert_tasks(&mut transaction, tasks, Some(self.now())).await.unwrap();
                match end {
                    End::Commit => transaction.commit().await.unwrap(),
                    End::RollBack => transaction.rollback().await.unwrap(),
                }
            }
        }
    }

    /// A schedule that fires every minute from now on, written.
    pub(crate) async fn every_minute(&self, name: &str) -> Schedule {
        let schedule = self.unwritten(name);
        self.create_schedule(&schedule).await.unwrap();
        schedule
    }

    /// A schedule that fires every minute from now on, not written yet.
    pub(crate) fn unwritten(&self, name: &str) -> Schedule {
        let definition = Definition::new(name, Rhythm::Every(60_000), "UTC", &topic("report"));
        Schedule::new(definition, self.now(), &ZONES).unwrap()
    }
}

/// Options for a test's store: a clock of its own, and few connections, for many tests run side by side.
pub(crate) fn options(clock: Option<FakeClock>) -> Options {
    Options { clock: clock.map(|clock| Arc::new(clock) as Arc<dyn Clock>), connections: 4, ..Options::default() }
}

/// A store as one node has it. The shorthands say what the answer has to be, and fail where it is not.
#[derive(Clone)]
pub(crate) struct NodeStore {
    pub(crate) id: NodeId,
    pub(crate) store: Arc<dyn Store>,
}

impl Deref for NodeStore {
    type Target = dyn Store;

    fn deref(&self) -> &Self::Target {
        &*self.store
    }
}

impl NodeStore {
    /// Asks for one task to be written.
    pub(crate) async fn create(&self, task: impl Into<NewTask>) -> Result<Created, StoreError> {
        self.create_all(vec![task.into()]).await.map(|mut made| made.remove(0))
    }

    /// Asks for tasks to be written together.
    pub(crate) async fn create_all(&self, tasks: Vec<NewTask>) -> Result<Vec<Created>, StoreError> {
        match self.create_tasks(tasks, None).await? {
            Creation::Made(made) => Ok(made),
            Creation::Replayed(answer) => panic!("replayed without an Idempotency-Key: {answer:?}"),
        }
    }

    /// Writes a task that was not there.
    pub(crate) async fn add(&self, task: impl Into<NewTask>) -> Task {
        fresh(self.create(task).await.unwrap())
    }

    /// Writes tasks that were not there, together.
    pub(crate) async fn add_all(&self, tasks: impl IntoIterator<Item = TaskBuilder>) -> Vec<Task> {
        let tasks = tasks.into_iter().map(NewTask::from).collect();
        self.create_all(tasks).await.unwrap().into_iter().map(fresh).collect()
    }

    /// What this node asks for when it claims from one topic.
    pub(crate) fn request(&self, topic_name: &str, slots: u32) -> ClaimRequest {
        ClaimRequest {
            node: self.id,
            lease: LEASE,
            wants: vec![Want { topic: topic(topic_name), slots }],
            suspects: Suspects::Any,
        }
    }

    /// Claims from one topic.
    pub(crate) async fn claim_up_to(&self, slots: u32, topic: &str) -> Vec<Task> {
        self.claim(&self.request(topic, slots)).await.unwrap()
    }

    /// Claims the one task that is due in the topic.
    pub(crate) async fn claim_one(&self, topic: &str) -> Task {
        let mut claimed = self.claim_up_to(2, topic).await;
        assert_eq!(claimed.len(), 1, "claimed {claimed:?}");
        claimed.remove(0)
    }

    /// Writes a task and claims it.
    pub(crate) async fn running(&self, task: impl Into<NewTask>) -> Task {
        let task = task.into();
        let (id, topic) = (task.id, task.topic.to_string());
        self.add(task).await;
        let claimed = self.claim_one(&topic).await;
        assert_eq!(claimed.id, id);
        claimed
    }

    /// Writes a task and brings it to its end.
    pub(crate) async fn ended(&self, task: impl Into<NewTask>, status: TaskStatus) -> Task {
        let running = self.running(task).await;
        let settlement = match status {
            TaskStatus::Completed => completed(),
            TaskStatus::Failed => failed("it broke"),
            TaskStatus::Cancelled => Settlement::Cancelled,
            TaskStatus::Pending | TaskStatus::Running => panic!("{status:?} is no end"),
        };
        self.settle_now(&running, settlement).await
    }

    /// Settles a task by the epoch it was claimed with.
    pub(crate) async fn settle_as(&self, task: &Task, settlement: Settlement) -> Settled {
        self.settle_by(task.id, task.epoch, settlement).await
    }

    /// Settles a task by an epoch.
    pub(crate) async fn settle_by(&self, task_id: TaskId, epoch: Epoch, settlement: Settlement) -> Settled {
        let settled = self.settle(vec![Settling { task_id, epoch, settlement }]).await.unwrap();
        assert_eq!(settled.len(), 1);
        settled[0]
    }

    /// Settles a task that runs, and tells what became of it.
    pub(crate) async fn settle_now(&self, task: &Task, settlement: Settlement) -> Task {
        assert_eq!(self.settle_as(task, settlement).await, Settled::Now);
        self.read(task.id).await
    }

    /// Extends one lease.
    pub(crate) async fn extend_one(&self, task: &Task, lease: Duration) -> Option<DateTime<Utc>> {
        let held = [Extension { task_id: task.id, epoch: task.epoch }];
        let extended = self.extend(&held, lease).await.unwrap();
        assert_eq!(extended.len(), 1);
        extended[0]
    }

    /// A task that is there.
    pub(crate) async fn read(&self, id: TaskId) -> Task {
        self.task(id).await.unwrap().expect("the task").task
    }

    /// The attempts of a task that is there.
    pub(crate) async fn attempts(&self, id: TaskId) -> Vec<AttemptRecord> {
        self.task(id).await.unwrap().expect("the task").attempts
    }

    /// The first thousand tasks that match.
    pub(crate) async fn list(&self, filter: TaskFilter) -> Vec<Task> {
        self.tasks(&filter, Page::first(1000)).await.unwrap()
    }

    /// Decides due schedules by the real rules.
    pub(crate) async fn tick_by_the_rules(&self) -> Ticked {
        let rules = FireRules { zones: ZONES.clone(), misfire_threshold: TimeDelta::seconds(30) };
        self.tick(100, &move |due, now| Some(decide(due, now, &rules).unwrap())).await.unwrap()
    }
}

/// A task to be written; states only what matters.
#[derive(Clone)]
pub(crate) struct TaskBuilder(NewTask);

/// A task of that topic, due now.
pub(crate) fn task(topic_name: &str) -> TaskBuilder {
    TaskBuilder(NewTask::new(topic(topic_name)))
}

impl From<TaskBuilder> for NewTask {
    fn from(builder: TaskBuilder) -> Self {
        builder.0
    }
}

impl TaskBuilder {
    pub(crate) fn build(self) -> NewTask {
        self.0
    }

    pub(crate) fn at(mut self, at: DateTime<Utc>) -> Self {
        self.0.due = Due::At(at);
        self
    }

    pub(crate) fn in_secs(mut self, seconds: u64) -> Self {
        self.0.due = Due::After(Duration::from_secs(seconds));
        self
    }

    pub(crate) fn priority(mut self, priority: i32) -> Self {
        self.0.priority = priority;
        self
    }

    pub(crate) fn payload(mut self, text: &str) -> Self {
        self.0.payload = Json::parse(text).unwrap();
        self
    }

    pub(crate) fn attempts(mut self, attempts: u32) -> Self {
        self.0.retry.attempts = attempts;
        self
    }

    pub(crate) fn client_request_id(mut self, id: &str) -> Self {
        self.0.client_request_id = Some(id.into());
        self
    }

    pub(crate) fn dedupe_key(mut self, key: &str) -> Self {
        self.0.dedupe_key = Some(key.into());
        self
    }

    pub(crate) fn serial_key(mut self, key: &str) -> Self {
        self.0.serial_key = Some(key.into());
        self
    }

    pub(crate) fn metadata(mut self, key: &str, value: &str) -> Self {
        self.0.metadata.insert(key.into(), value.into());
        self
    }

    pub(crate) fn owner(self, owner: &str) -> Self {
        self.metadata("ownerId", owner)
    }

    pub(crate) fn of_schedule(mut self, schedule_id: ScheduleId, scheduled_at: DateTime<Utc>) -> Self {
        self.0.fire = Some(FireOfTask { schedule_id, scheduled_at });
        self
    }
}

/// A task as it must stand right after it was written.
pub(crate) fn written(new: NewTask, now: DateTime<Utc>) -> Task {
    let run_at = match new.due {
        Due::At(at) => at,
        Due::After(delay) => now + delay,
        Due::Now => now,
    };
    new.into_task(run_at, now)
}

/// The topic of that name.
pub(crate) fn topic(name: &str) -> Topic {
    name.parse().unwrap()
}

/// It ended well, with nothing to show.
pub(crate) fn completed() -> Settlement {
    Settlement::Completed { result: None }
}

/// It ended badly.
pub(crate) fn failed(error: &str) -> Settlement {
    Settlement::Failed { outcome: AttemptOutcome::Failed, error: error.into() }
}

/// It failed and waits so many seconds for the next attempt.
pub(crate) fn retried(seconds: u64) -> Settlement {
    let after = Duration::from_secs(seconds);
    Settlement::Retried { outcome: AttemptOutcome::Failed, error: "not yet".into(), after }
}

/// It asked to be called so many seconds later.
pub(crate) fn snoozed(seconds: u64) -> Settlement {
    Settlement::Snoozed { after: Duration::from_secs(seconds) }
}

/// The task that was written.
pub(crate) fn fresh(created: Created) -> Task {
    match created {
        Created::Fresh(task) => task,
        Created::Deduplicated(task) => panic!("{} stood for it", task.id),
    }
}

/// The living task that stood for the new one.
pub(crate) fn deduplicated(created: Created) -> Task {
    match created {
        Created::Deduplicated(task) => task,
        Created::Fresh(task) => panic!("{} was written", task.id),
    }
}

/// The ids of tasks, in their order.
pub(crate) fn ids<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Vec<TaskId> {
    tasks.into_iter().map(|task| task.id).collect()
}

/// The ids, largest first: the order of lists.
pub(crate) fn newest_first<'a>(tasks: impl IntoIterator<Item = &'a Task>) -> Vec<TaskId> {
    let mut ids = ids(tasks);
    ids.sort_unstable_by(|a, b| b.cmp(a));
    ids
}

/// A map of text to text.
pub(crate) fn map<const N: usize>(entries: [(&str, &str); N]) -> BTreeMap<String, String> {
    entries.into_iter().map(|(key, value)| (key.into(), value.into())).collect()
}

/// Runs one future per node side by side, and answers what each answered.
pub(crate) async fn side_by_side<T, F>(nodes: Vec<NodeStore>, act: impl Fn(NodeStore) -> F) -> Vec<T>
where
    T: Send + 'static,
    F: Future<Output = T> + Send + 'static,
{
    let racing: Vec<_> = nodes.into_iter().map(|node| tokio::spawn(act(node))).collect();
    futures::future::join_all(racing).await.into_iter().map(Result::unwrap).collect()
}
