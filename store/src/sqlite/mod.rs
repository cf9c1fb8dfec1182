//! SQLite: one node, nothing to install.
//!
//! One connection writes (`writer.rs`), a small pool reads beside it; WAL lets neither wait for the other. What is
//! answered is on disk: `synchronous=FULL`, read back after opening. One process owns the file: a lock beside it keeps a
//! second one out. "Now" is the process's clock, which never goes backwards, asked once per job; a restart goes on where it
//! stopped (`resume.rs`).
//!
//! Many rows travel as one JSON parameter that the statement takes apart: a statement costs a hop to SQLite's thread and
//! back, so ten thousand tasks are one statement, not ten thousand. (`jsonb_each` renders its `value` anew each time a
//! statement mentions it; the CTE `given` has it once per row.)

mod alerts;
mod answers;
mod audit;
mod backup;
mod bulk;
mod calendars;
mod claims;
mod cluster;
mod completion;
mod file;
mod fires;
mod glance;
mod hand_overs;
mod inspection;
mod lines;
mod list;
mod migrate;
mod outbox;
mod piece;
#[cfg(test)]
mod plans;
mod plugins;
mod pulls;
mod resume;
mod rows;
mod schedules;
mod settle;
mod tasks;
mod tick;
mod ticks;
mod topics;
mod upkeep;
mod writer;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::clock::Clock;
use punctual_domain::store::StoreError;
use punctual_sdk::Database;
use punctual_sdk::engine::Turn;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions, SqlitePool};

pub(crate) use answers::keep_now as keep_answer;
pub use backup::{backup, restore};
pub use migrate::schema_state;
pub(crate) use outbox::post;
pub(crate) use settle::cancel;
pub use tasks::insert_tasks;
pub(crate) use topics::definitions;

use crate::plugins::Enqueue;
use crate::{Access, ConnectError, Migrate, Options, SchemaState};
use file::Place;
use lines::Lines;
use writer::{Failing, Line, Work, Writer};

/// How long SQLite waits for a lock that somebody else holds, such as a backup.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How long waiting for a reader may take.
const ACQUIRE_DEADLINE: Duration = Duration::from_secs(5);

/// A store in a SQLite file, or in memory for tests.
pub struct SqliteStore {
    writer: Writer,
    /// `None` in memory: there readers and the writer would wait for each other, so the writer reads too.
    readers: Option<SqlitePool>,
    /// As plugins use it, on connections of their own.
    database: Database,
    now: Arc<Now>,
    lines: Lines,
    /// How the file is opened once more, to close it in good order; `None` in memory.
    reopen: Option<SqliteConnectOptions>,
    deadline: Duration,
}

impl SqliteStore {
    /// Opens the file at `url`, creating it if it is not there, and brings its schema up to date.
    ///
    /// # Errors
    /// When the file cannot be used, another process has it, or its schema is newer than ours.
    pub async fn connect(url: &str, options: Options) -> Result<Self, ConnectError> {
        let now = Arc::new(Now::new(options.clock));
        let (line, readers, for_plugins, reopen, lock) = match Place::of(url)? {
            Place::Memory => {
                let write = in_memory();
                let mut connection = write.connect().await.map_err(broken)?;
                prepare(&mut connection, options.migrate, &now).await?;
                (Line::in_memory(connection), None, write, None, None)
            }
            Place::File(path) if options.access == Access::Look => {
                let connection = look(&path).await?;
                let readers = readers(&path, options.connections);
                let line = Line::to_file(connection, reading(&path), file::Identity::of(&path)?);
                (line, Some(readers), reading(&path), None, None)
            }
            Place::File(path) => {
                // By whatever name it is called, it is locked by one.
                let path = path.canonicalize().unwrap_or(path);
                if options.migrate == Migrate::Check && !path.exists() {
                    SchemaState::EMPTY.check_complete().map_err(ConnectError::Refused)?;
                }
                let lock = file::lock(&path).await?;
                let write = writing(&path).create_if_missing(true);
                let mut connection = write.connect().await.map_err(|error| file::cannot_open(&path, error))?;
                check_durability(&mut connection).await?;
                prepare(&mut connection, options.migrate, &now).await?;
                resume::resume(&mut connection, &now).await?;
                let readers = readers(&path, options.connections);
                (
                    Line::to_file(connection, writing(&path), file::Identity::of(&path)?),
                    Some(readers),
                    writing(&path),
                    Some(writing(&path)),
                    Some(lock),
                )
            }
        };
        let turn = Turn::default();
        let writer = Writer::start(line, turn.clone(), now.clone(), lock);
        let for_plugins = SqlitePoolOptions::new()
            .max_connections(options.connections.max(2))
            .acquire_timeout(ACQUIRE_DEADLINE)
            .test_before_acquire(false)
            .connect_lazy_with(for_plugins);
        let enqueue = Enqueue {
            now: Arc::new({
                let now = now.clone();
                move || Some(now.now())
            }),
        };
        let database = Database::sqlite(for_plugins, turn, Arc::new(enqueue));
        let lines = Lines::default();
        Ok(Self { writer, readers, database, reopen, now, lines, deadline: options.deadline })
    }

    /// Runs `work` in a transaction of the writer, and answers once it is committed.
    async fn write<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T, StoreError> {
        self.within_deadline(self.writer.run(Failing::Alone, work)).await
    }

    /// The same without a savepoint: what fails takes along what is written beside it. For what is written most.
    async fn write_unguarded<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T, StoreError> {
        self.within_deadline(self.writer.run(Failing::Together, work)).await
    }

    /// Runs `work` on a reader. Each statement sees a snapshot; two statements may see two.
    async fn read<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T, StoreError> {
        let Some(readers) = &self.readers else { return self.write(work).await };
        let reading = async {
            let mut connection = readers.acquire().await.map_err(broken)?;
            work(&mut connection, self.now.now()).await
        };
        self.within_deadline(reading).await
    }

    /// Runs `work` on a reader, all its statements on one snapshot.
    async fn snapshot<T: Send + 'static>(&self, work: impl Work<T>) -> Result<T, StoreError> {
        let Some(readers) = &self.readers else { return self.write(work).await };
        let reading = async {
            let mut transaction = readers.begin().await.map_err(broken)?;
            let outcome = work(&mut transaction, self.now.now()).await;
            transaction.rollback().await.map_err(broken)?;
            outcome
        };
        self.within_deadline(reading).await
    }

    async fn within_deadline<T>(&self, work: impl Future<Output = Result<T, StoreError>>) -> Result<T, StoreError> {
        tokio::time::timeout(self.deadline, work)
            .await
            .unwrap_or_else(|_| Err(StoreError::Unavailable(format!("no answer within {:?}", self.deadline))))
    }
}

/// The store's clock: whole microseconds, never backwards.
struct Now {
    clock: Option<Arc<dyn Clock>>,
    latest: AtomicI64,
}

impl Now {
    fn new(clock: Option<Arc<dyn Clock>>) -> Self {
        Self { clock, latest: AtomicI64::new(i64::MIN) }
    }

    fn now(&self) -> DateTime<Utc> {
        let told = self.clock.as_ref().map_or_else(Utc::now, |clock| clock.now());
        let micros = told.timestamp_micros();
        let latest = self.latest.fetch_max(micros, Ordering::Relaxed).max(micros);
        DateTime::from_timestamp_micros(latest).unwrap_or(told)
    }

    /// Stands still until it shows this.
    fn not_before(&self, at: DateTime<Utc>) {
        self.latest.fetch_max(at.timestamp_micros(), Ordering::Relaxed);
    }
}

/// The file that a URL names; none if it is in memory.
///
/// # Errors
/// When it is no URL of SQLite.
pub fn file_of(url: &str) -> Result<Option<PathBuf>, ConnectError> {
    Ok(match Place::of(url)? {
        Place::Memory => None,
        Place::File(path) => Some(path),
    })
}

/// What every connection is opened with.
fn tuned(options: SqliteConnectOptions) -> SqliteConnectOptions {
    options.busy_timeout(BUSY_TIMEOUT).row_buffer_size(1024).pragma("temp_store", "memory").disable_statement_logging()
}

/// A database in memory of which there is no other. Connections to it find it by its name, as long as there is one of them.
fn in_memory() -> SqliteConnectOptions {
    let name = format!("/{}", uuid::Uuid::new_v4());
    tuned(SqliteConnectOptions::new().filename(name)).vfs("memdb").create_if_missing(true)
}

fn writing(path: &Path) -> SqliteConnectOptions {
    tuned(SqliteConnectOptions::new().filename(path))
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(SqliteSynchronous::Full)
        // 8 MiB; a negative number counts KiB. Each commit walks through all of it.
        .pragma("cache_size", "-8192")
        // In pages, 16 MiB: a page that changes often is written back to the database less often.
        .pragma("wal_autocheckpoint", "4096")
}

fn reading(path: &Path) -> SqliteConnectOptions {
    tuned(SqliteConnectOptions::new().filename(path)).read_only(true).pragma("cache_size", "-8192")
}

fn readers(path: &Path, connections: u32) -> SqlitePool {
    SqlitePoolOptions::new()
        .max_connections(connections.max(1))
        .acquire_timeout(ACQUIRE_DEADLINE)
        .test_before_acquire(false)
        .connect_lazy_with(reading(path))
}

/// Opens a file for reading, whoever owns it, and checks its schema.
///
/// SQLite lets a second process read beside the one that writes, and never makes either wait for the other.
async fn look(path: &Path) -> Result<SqliteConnection, ConnectError> {
    if !path.exists() {
        return Err(ConnectError::Refused(format!("there is no database at {}: correct the URL", path.display())));
    }
    let mut connection = reading(path).connect().await.map_err(|error| file::cannot_open(path, error))?;
    migrate::check(&mut connection).await?;
    Ok(connection)
}

/// Refuses a file that cannot keep what was answered through a power cut.
async fn check_durability(connection: &mut SqliteConnection) -> Result<(), ConnectError> {
    let journal_mode: String =
        sqlx::query_scalar("PRAGMA journal_mode").fetch_one(&mut *connection).await.map_err(broken)?;
    if journal_mode != "wal" {
        return Err(ConnectError::Refused(format!(
            "SQLite cannot use its write-ahead log here (journal_mode is {journal_mode}): put the database on a local disk"
        )));
    }
    let synchronous: i64 = sqlx::query_scalar("PRAGMA synchronous").fetch_one(connection).await.map_err(broken)?;
    if synchronous < FULL {
        return Err(ConnectError::Refused(format!(
            "SQLite runs with synchronous={synchronous}, so a power cut can lose tasks that were answered with 201: it \
             has to be {FULL} (FULL)"
        )));
    }
    Ok(())
}

/// What `PRAGMA synchronous` answers for FULL.
const FULL: i64 = 2;

async fn prepare(connection: &mut SqliteConnection, migrate: Migrate, now: &Now) -> Result<(), ConnectError> {
    match migrate {
        Migrate::Run => migrate::run(connection, now.now()).await,
        Migrate::Check => migrate::check(connection).await,
    }
}

const BUSY: i32 = 5;
const LOCKED: i32 = 6;
const NO_MEMORY: i32 = 7;
const READ_ONLY: i32 = 8;
const INTERRUPTED: i32 = 9;
const IO_ERROR: i32 = 10;
const FULL_DISK: i32 = 13;
const CANNOT_OPEN: i32 = 14;
/// Somebody else wrote into the file.
const DAMAGED: i32 = 11;
const NOT_A_DATABASE: i32 = 26;

/// SQLite's primary result code; the upper bits of what sqlx reports only say more about it.
fn primary_code(error: &sqlx::Error) -> Option<i32> {
    let code: i32 = error.as_database_error()?.code()?.parse().ok()?;
    Some(code & 0xff)
}

/// What a failed statement means: the database is away, or something is wrong with it or with us.
pub(crate) fn broken(error: sqlx::Error) -> StoreError {
    match (&error, primary_code(&error)) {
        (_, Some(BUSY | LOCKED | NO_MEMORY | READ_ONLY | INTERRUPTED | IO_ERROR | FULL_DISK | CANNOT_OPEN))
        | (_, Some(DAMAGED | NOT_A_DATABASE))
        | (
            sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::WorkerCrashed,
            None,
        ) => StoreError::Unavailable(error.to_string()),
        _ => StoreError::Broken(error.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use chrono::TimeDelta;
    use futures::FutureExt;
    use punctual_domain::clock::FakeClock;
    use punctual_domain::id::{Epoch, NodeId};
    use punctual_domain::store::{
        ClaimRequest, Claims, Cluster, Created, Creation, Page, Settled, Settling, Suspects, TaskFilter, Tasks, Want,
    };
    use punctual_domain::task::{NewTask, Settlement, TaskStatus};
    use sqlx::Connection;
    use tempfile::TempDir;

    use super::*;

    fn new_task() -> NewTask {
        NewTask::new("mail".parse().unwrap())
    }

    fn url(folder: &TempDir) -> String {
        format!("sqlite://{}", folder.path().join("punctual.db").display())
    }

    async fn open(folder: &TempDir) -> SqliteStore {
        SqliteStore::connect(&url(folder), Options::default()).await.unwrap()
    }

    async fn refusal(url: &str) -> String {
        match SqliteStore::connect(url, Options::default()).await.err().expect("it is refused") {
            ConnectError::Refused(sentence) | ConnectError::InUse(sentence) => sentence,
            other => panic!("{other:?}"),
        }
    }

    async fn ids(store: &SqliteStore) -> Vec<punctual_domain::id::TaskId> {
        let tasks = store.tasks(&TaskFilter::default(), Page::first(1000)).await.unwrap();
        tasks.into_iter().map(|task| task.id).collect()
    }

    #[tokio::test]
    async fn a_task_lives_in_a_file_and_in_memory() {
        let folder = TempDir::new().unwrap();
        let in_memory = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        for store in [open(&folder).await, in_memory] {
            let task = new_task();
            let id = task.id;
            let Creation::Made(made) = store.create_tasks(vec![task], None).await.unwrap() else { panic!("replayed") };
            let [Created::Fresh(written)] = &made[..] else { panic!("{made:?}") };
            assert_eq!(store.task(id).await.unwrap().unwrap().task, *written);
            let request = ClaimRequest {
                node: NodeId::generate(),
                lease: Duration::from_secs(30),
                wants: vec![Want { topic: "mail".parse().unwrap(), slots: 10 }],
                suspects: Suspects::Any,
            };
            let claimed = store.claim(&request).await.unwrap();
            assert_eq!((claimed.len(), claimed[0].epoch, claimed[0].lost), (1, Epoch(1), 1));
            let settlement = Settlement::Completed { result: None };
            let settlings = vec![Settling { task_id: id, epoch: Epoch(1), settlement }];
            assert_eq!(store.settle(settlings.clone()).await.unwrap(), [Settled::Now]);
            assert_eq!(store.settle(settlings).await.unwrap(), [Settled::Before]);
            let ended = store.task(id).await.unwrap().unwrap();
            assert_eq!((ended.task.status, ended.task.lost, ended.attempts.len()), (TaskStatus::Completed, 0, 1));
        }
    }

    #[tokio::test]
    async fn two_stores_in_memory_share_nothing() {
        let one = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let other = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        one.create_tasks(vec![new_task()], None).await.unwrap();
        assert_eq!((ids(&one).await.len(), ids(&other).await.len()), (1, 0));
    }

    #[tokio::test]
    async fn what_waits_is_committed_together_and_a_failure_stays_alone() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let (open_the_gate, gate) = tokio::sync::oneshot::channel::<()>();
        let first = store.write(move |_, _| Box::pin(async move { gate.await.map_err(|_| StoreError::NotFound) }));
        let seen = Arc::new(Mutex::new(None));
        let (seen_by_job, path) = (seen.clone(), folder.path().join("punctual.db"));
        let taken = || NewTask { client_request_id: Some("once".into()), ..new_task() };
        let waiting = async {
            tokio::join!(
                store.create_tasks(vec![taken()], None),
                store.create_tasks(vec![new_task(), taken()], None),
                store.write(move |connection, _| {
                    Box::pin(async move {
                        sqlx::query("INSERT INTO punctual_facts VALUES ('half', 'done')")
                            .execute(connection)
                            .await
                            .unwrap();
                        Err::<(), _>(StoreError::NotFound)
                    })
                }),
                store.create_tasks(vec![new_task()], None),
                // The last of the batch: those before it are written, and nobody else can see them yet.
                store.write(move |connection, _| {
                    Box::pin(async move {
                        let count =
                            "SELECT (SELECT count(*) FROM punctual_tasks), (SELECT count(*) FROM punctual_facts)";
                        let inside: (i64, i64) = sqlx::query_as(count).fetch_one(connection).await.unwrap();
                        let mut other = reading(&path).connect().await.unwrap();
                        let outside: (i64, i64) = sqlx::query_as(count).fetch_one(&mut other).await.unwrap();
                        *seen_by_job.lock().unwrap() = Some((inside, outside));
                        Ok(())
                    })
                }),
            )
        };
        let (_, (one, reused, failed, two, last), _) = tokio::join!(first, waiting, async {
            tokio::task::yield_now().await;
            open_the_gate.send(()).unwrap();
        });
        assert!(one.is_ok() && two.is_ok() && last.is_ok());
        assert_eq!(reused, Err(StoreError::ClientRequestIdInUse("once".into())));
        assert_eq!(failed, Err(StoreError::NotFound));
        assert_eq!(*seen.lock().unwrap(), Some(((2, 0), (0, 0))));
        assert_eq!(ids(&store).await.len(), 2);
    }

    #[tokio::test]
    async fn a_write_with_a_savepoint_that_panics_hurts_nobody_else() {
        let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let panicked = store.write::<()>(|_, _| panic!("on purpose")).await;
        assert!(matches!(panicked, Err(StoreError::Broken(_))), "{panicked:?}");
        store.create_tasks(vec![new_task()], None).await.unwrap();
    }

    #[tokio::test]
    async fn a_write_whose_caller_has_gone_is_not_begun() {
        let store = SqliteStore::connect("sqlite::memory:", Options::default()).await.unwrap();
        let (open_the_gate, gate) = tokio::sync::oneshot::channel::<()>();
        let first = store.write(move |_, _| Box::pin(async move { gate.await.map_err(|_| StoreError::NotFound) }));
        let (_, _) = tokio::join!(first, async {
            let gone =
                tokio::time::timeout(Duration::from_millis(10), store.create_tasks(vec![new_task()], None)).await;
            assert!(gone.is_err());
            open_the_gate.send(()).unwrap();
        });
        assert_eq!(ids(&store).await.len(), 0);
    }

    #[tokio::test]
    async fn a_failed_commit_is_unavailable_and_the_writer_recovers() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let lost = store
            .write(|connection, _| {
                Box::pin(async move {
                    // Ends the writer's transaction behind its back: what follows cannot be committed.
                    sqlx::query("ROLLBACK").execute(connection).await.unwrap();
                    Ok(())
                })
            })
            .await;
        assert!(matches!(lost, Err(StoreError::Unavailable(_))), "{lost:?}");
        store.create_tasks(vec![new_task()], None).await.unwrap();
        assert_eq!(ids(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn what_fails_without_a_savepoint_takes_its_neighbours_along_and_is_told_apart_from_them() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let fail = || async { Err::<(), _>(StoreError::Broken("odd".into())) }.boxed();
        // Sent before the writer runs, they share a transaction.
        let (neighbour, failed) =
            tokio::join!(store.create_tasks(vec![new_task()], None), store.write_unguarded(move |_, _| fail()));
        assert!(matches!(&neighbour, Err(StoreError::Unavailable(reason)) if reason.contains("odd")), "{neighbour:?}");
        assert!(matches!(failed, Err(StoreError::Broken(_))), "{failed:?}");
        assert_eq!(ids(&store).await, []);

        let (neighbour, failed) =
            tokio::join!(store.create_tasks(vec![new_task()], None), store.write(move |_, _| fail()));
        assert!(neighbour.is_ok() && matches!(failed, Err(StoreError::Broken(_))), "{neighbour:?} {failed:?}");
        assert_eq!(ids(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn a_full_disk_is_unavailable_until_there_is_room() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let limit_pages = |limit: &'static str| {
            store.write(move |connection, _| {
                Box::pin(async move { sqlx::raw_sql(limit).execute(connection).await.map(drop).map_err(broken) })
            })
        };
        limit_pages("PRAGMA max_page_count = 1").await.unwrap();
        let large = || NewTask {
            payload: punctual_domain::json::Json::parse(format!("\"{}\"", "x".repeat(500_000))).unwrap(),
            ..new_task()
        };
        let full = store.create_tasks(vec![large()], None).await;
        assert!(matches!(&full, Err(StoreError::Unavailable(reason)) if reason.contains("full")), "{full:?}");
        assert!(store.check().await.is_err());
        // What changes nothing, or is undone, says nothing about the disk.
        let write = |statement: &'static str, outcome: Result<(), StoreError>| {
            store.write(move |connection, _| {
                async move {
                    sqlx::query(statement).execute(connection).await.map_err(broken)?;
                    outcome
                }
                .boxed()
            })
        };
        let nothing = || write("SELECT 1", Ok(()));
        let refused = || write("INSERT INTO punctual_facts VALUES ('half', 'done')", Err(StoreError::NotFound));
        let not_found = Err(StoreError::NotFound);
        assert_eq!((nothing().await, refused().await), (Ok(()), not_found.clone()));
        assert_eq!(tokio::join!(nothing(), nothing()), (Ok(()), Ok(())));
        assert_eq!(tokio::join!(refused(), nothing()), (not_found.clone(), Ok(())));
        assert!(store.check().await.is_err());
        // Opened again, the connection has no limit any more. Who is refused beside a job that writes does not hide that.
        let fact = || write("INSERT INTO punctual_facts VALUES ('whole', 'done')", Ok(()));
        assert_eq!(tokio::join!(refused(), fact(), refused()), (not_found.clone(), Ok(()), not_found));
        assert_eq!(store.check().await, Ok(()));
        store.create_tasks(vec![large()], None).await.unwrap();
        assert_eq!(store.check().await, Ok(()));
        assert_eq!(ids(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn tasks_in_the_callers_own_transaction_share_its_fate() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let mut own =
            tuned(SqliteConnectOptions::new().filename(folder.path().join("punctual.db"))).connect().await.unwrap();
        let kept = new_task();
        let kept_id = kept.id;

        let mut transaction = own.begin().await.unwrap();
        insert_tasks(&mut transaction, vec![new_task()], Utc::now()).await.unwrap();
        transaction.rollback().await.unwrap();
        let mut transaction = own.begin().await.unwrap();
        insert_tasks(&mut transaction, vec![kept], Utc::now()).await.unwrap();
        assert_eq!(ids(&store).await, []);
        transaction.commit().await.unwrap();
        assert_eq!(ids(&store).await, [kept_id]);
    }

    #[tokio::test]
    async fn a_stranger_that_writes_is_waited_for() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let mut stranger = writing(&folder.path().join("punctual.db")).connect().await.unwrap();
        let transaction = stranger.begin_with("BEGIN IMMEDIATE").await.unwrap();
        let (written, ()) = tokio::join!(store.create_tasks(vec![new_task()], None), async {
            // The pause is the stranger's, not the test's: it holds the lock for a while.
            tokio::time::sleep(Duration::from_millis(100)).await;
            assert_eq!(ids(&store).await, []);
            transaction.rollback().await.unwrap();
        });
        assert!(written.is_ok(), "{written:?}");
        assert_eq!(ids(&store).await.len(), 1);
    }

    #[tokio::test]
    async fn a_second_store_is_refused_until_the_first_is_gone() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        let sentence = refusal(&url(&folder)).await;
        assert!(sentence.contains("punctual.db is in use by another punctual process"), "{sentence}");
        assert!(sentence.contains("use PostgreSQL for several"), "{sentence}");
        assert_eq!(schema_state(&url(&folder)).await.unwrap().version, SchemaState::ours());
        drop(store);
        open(&folder).await;
    }

    #[tokio::test]
    async fn what_survives_a_restart_is_what_was_answered() {
        let folder = TempDir::new().unwrap();
        let store = open(&folder).await;
        store.create_tasks((0..50).map(|_| new_task()).collect(), None).await.unwrap();
        let before = ids(&store).await;
        drop(store);
        assert_eq!(ids(&open(&folder).await).await, before);
    }

    #[tokio::test]
    async fn a_file_that_cannot_be_used_is_refused_by_name() {
        let folder = TempDir::new().unwrap();
        let named = |name: &str| format!("sqlite://{}", folder.path().join(name).display());

        std::fs::write(folder.path().join("letter.txt"), "Dear SQLite, ".repeat(100)).unwrap();
        let sentence = refusal(&named("letter.txt")).await;
        assert!(sentence.contains("letter.txt is not a SQLite database"), "{sentence}");

        let sentence = refusal(&named("missing/punctual.db")).await;
        assert!(sentence.contains("missing does not exist: create it"), "{sentence}");

        let read_only = folder.path().join("read-only.db");
        std::fs::write(&read_only, "").unwrap();
        let mut permissions = std::fs::metadata(&read_only).unwrap().permissions();
        permissions.set_readonly(true);
        std::fs::set_permissions(&read_only, permissions).unwrap();
        let sentence = refusal(&named("read-only.db")).await;
        assert!(sentence.contains("read-only.db is read-only"), "{sentence}");

        std::fs::create_dir(folder.path().join("folder")).unwrap();
        let sentence = refusal(&named("folder")).await;
        assert!(sentence.contains("is a folder"), "{sentence}");
    }

    #[tokio::test]
    async fn asking_for_the_schema_creates_nothing_and_checking_it_changes_nothing() {
        let folder = TempDir::new().unwrap();
        assert_eq!(schema_state(&url(&folder)).await.unwrap(), SchemaState::EMPTY);
        assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
        let options = Options { migrate: Migrate::Check, ..Options::default() };
        let error = SqliteStore::connect(&url(&folder), options.clone()).await.err().unwrap().to_string();
        assert!(error.contains("punctual migrate"), "{error}");
        drop(open(&folder).await);
        SqliteStore::connect(&url(&folder), options).await.unwrap();
    }

    #[tokio::test]
    async fn a_migration_that_was_applied_in_another_form_is_refused() {
        let folder = TempDir::new().unwrap();
        drop(open(&folder).await);
        let mut connection = writing(&folder.path().join("punctual.db")).connect().await.unwrap();
        sqlx::query("UPDATE punctual_schema SET checksum = 'other' WHERE version = 2")
            .execute(&mut connection)
            .await
            .unwrap();
        connection.close().await.unwrap();
        let sentence = refusal(&url(&folder)).await;
        assert!(sentence.contains("migration 0002_schedules was applied"), "{sentence}");
    }

    #[tokio::test]
    async fn a_file_that_loses_what_was_answered_is_refused() {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("punctual.db");
        let fast = writing(&path).create_if_missing(true).synchronous(SqliteSynchronous::Normal);
        let error = check_durability(&mut fast.connect().await.unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("synchronous=1"), "{error}");
        let old = writing(&path).journal_mode(SqliteJournalMode::Delete);
        let error = check_durability(&mut old.connect().await.unwrap()).await.unwrap_err().to_string();
        assert!(error.contains("journal_mode is delete"), "{error}");
        check_durability(&mut writing(&path).connect().await.unwrap()).await.unwrap();
    }

    #[tokio::test]
    async fn no_frequent_statement_reads_a_table_from_end_to_end() {
        macro_rules! statements {
            ($($name:literal)*) => { [$(($name, include_str!(concat!("sql/", $name, ".sql")))),*] };
        }
        let frequent = statements![
            "advance_schedules" "attempts" "claim" "claimable" "claimable_suspects" "count_due" "delete_tasks" "due_schedules" "due_tasks" "due_topics"
            "audited_tasks" "double_fires"
            "end_tasks" "events" "expired" "extend" "find_answer" "hand_to_worker" "insert_tasks" "known_fires" "known_messages"
            "live_tasks_of_schedules" "living_by_key" "missed_fires" "next_due_at" "next_repair" "next_message_at"
            "next_tick_at" "note_attempts" "note_missed" "prunable_tasks" "prune_answers" "prune_attempts" "prune_fires" "prune_messages" "prune_missed_fires" "replan" "resuming_schedules"
            "prune_tasks" "record_sending" "requeue" "retry_message" "sender_of_message" "settled_before" "take_message" "take_messages" "update_schedule"
            "use_client_requests" "used_client_requests"
        ];
        // What the statements bring along themselves.
        let is_small = |scan: &str| {
            scan.contains("VIRTUAL TABLE")
                || scan.contains("CONSTANT ROW")
                || scan.starts_with('(')
                || ["given", "g", "w", "l", "n", "e", "names", "suspects"].contains(&scan)
        };
        let mut connection = tuned(SqliteConnectOptions::new().filename(":memory:")).connect().await.unwrap();
        migrate::run(&mut connection, Utc::now()).await.unwrap();
        for (name, statement) in frequent {
            let plan = sqlx::AssertSqlSafe(format!("EXPLAIN QUERY PLAN {statement}"));
            let steps: Vec<(i64, i64, i64, String)> = sqlx::query_as(plan).fetch_all(&mut connection).await.unwrap();
            for (_, _, _, step) in steps {
                let scan = step.strip_prefix("SCAN ");
                assert!(scan.is_none_or(is_small), "{name}: {step}");
                assert!(!step.contains("AUTOMATIC"), "{name}: {step}");
            }
        }
    }

    #[tokio::test]
    async fn the_clock_has_whole_microseconds_and_never_goes_back() {
        let clock = FakeClock::at_text("2026-11-16T12:00:00.000000999Z");
        let options = Options { clock: Some(Arc::new(clock.clone())), ..Options::default() };
        let store = SqliteStore::connect("sqlite::memory:", options).await.unwrap();
        let now = Cluster::now(&store).await.unwrap();
        assert_eq!(now.to_rfc3339(), "2026-11-16T12:00:00+00:00");
        clock.advance(TimeDelta::seconds(1));
        assert!(Cluster::now(&store).await.unwrap() > now);
    }
}
