//! The one writer: every change of the database goes through one connection, and what waits is committed together.
//!
//! Callers send jobs and wait. The writer takes everything that is waiting, runs it in one transaction, commits once, and
//! only then answers anybody: one flush to disk for many callers.
//!
//! - A job that fails is rolled back alone, to a savepoint of its own; its neighbours are not hurt. Claims and settles
//!   do without one, because SQLite copies every page that changes inside a savepoint: one that fails, by a database in
//!   trouble or a bug of ours, fails with its neighbours.
//! - If the transaction itself fails (disk full, an I/O error, the file locked by a stranger), every job of it is
//!   answered with `Unavailable`, and the writer opens its connection anew.
//! - Why the last transaction failed is kept until one is committed in which a job changed something: what changes nothing,
//!   or is undone, also succeeds on a disk that is full.
//! - A job whose caller has gone is not begun. One that was begun runs to its end.
//! - The queue is bounded: a caller waits for a place.

use std::fs::File;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex};

use chrono::{DateTime, Utc};
use futures::FutureExt;
use futures::future::BoxFuture;
use punctual_domain::store::StoreError;
use punctual_sdk::engine::Turn;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};
use sqlx::{ConnectOptions, Connection};
use tokio::sync::{mpsc, oneshot};

use super::file::Identity;
use super::{Now, broken};

/// How many jobs may wait.
const QUEUE: usize = 1024;
/// How many jobs share a transaction at the most.
const BATCH: usize = 256;

/// The callers' side.
#[derive(Clone)]
pub(super) struct Writer {
    jobs: mpsc::Sender<Box<dyn Job>>,
    trouble: Trouble,
    identity: Option<Identity>,
}

impl Writer {
    /// Starts the writer on a connection that was opened and checked; `lock` is kept for as long as it lives.
    pub(super) fn start(line: Line, turn: Turn, now: Arc<Now>, lock: Option<File>) -> Self {
        let (jobs, waiting) = mpsc::channel(QUEUE);
        let trouble = Trouble::default();
        let identity = line.identity.clone();
        tokio::spawn(serve(waiting, line, turn, now, lock, trouble.clone()));
        Self { jobs, trouble, identity }
    }

    /// Whether the file is there, and what was last to be changed was committed.
    pub(super) fn check(&self) -> Result<(), StoreError> {
        if self.jobs.is_closed() {
            return Err(stopped());
        }
        if let Some(identity) = &self.identity {
            identity.check()?;
        }
        self.trouble.found().map_or(Ok(()), Err)
    }

    /// Runs `work` in a transaction, and answers once it is committed.
    pub(super) async fn run<T: Send + 'static>(&self, failing: Failing, work: impl Work<T>) -> Result<T, StoreError> {
        let (caller, answer) = oneshot::channel();
        let call = Call { work: Some(work), failing, outcome: None, caller };
        self.jobs.send(Box::new(call)).await.map_err(|_| stopped())?;
        answer.await.unwrap_or_else(|_| Err(stopped()))
    }
}

fn stopped() -> StoreError {
    StoreError::Unavailable("the writer has stopped".into())
}

/// What is done with a connection, at an instant of the store's clock.
pub(super) trait Work<T>:
    for<'c> FnOnce(&'c mut SqliteConnection, DateTime<Utc>) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static
{
}

impl<T, W> Work<T> for W where
    W: for<'c> FnOnce(&'c mut SqliteConnection, DateTime<Utc>) -> BoxFuture<'c, Result<T, StoreError>> + Send + 'static
{
}

/// Why a transaction failed, until one was committed that changed something.
#[derive(Clone, Default)]
struct Trouble(Arc<Mutex<Option<StoreError>>>);

impl Trouble {
    fn found(&self) -> Option<StoreError> {
        self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()).clone()
    }

    fn note(&self, found: Option<StoreError>) {
        *self.0.lock().unwrap_or_else(|poisoned| poisoned.into_inner()) = found;
    }
}

/// Whom a job that fails takes along.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Failing {
    /// Nobody: its own changes are rolled back, to a savepoint.
    Alone,
    /// Every job of its transaction.
    Together,
}

/// The writer's connection, and how to open it again.
pub(super) struct Line {
    connection: Option<SqliteConnection>,
    /// `None` for a database in memory: it lives and dies with its connection.
    reopen: Option<SqliteConnectOptions>,
    /// The file that must still be there.
    identity: Option<Identity>,
}

impl Line {
    pub(super) fn to_file(connection: SqliteConnection, options: SqliteConnectOptions, identity: Identity) -> Self {
        Self { connection: Some(connection), reopen: Some(options), identity: Some(identity) }
    }

    pub(super) fn in_memory(connection: SqliteConnection) -> Self {
        Self { connection: Some(connection), reopen: None, identity: None }
    }

    async fn connection(&mut self) -> Result<&mut SqliteConnection, StoreError> {
        if let Some(identity) = &self.identity {
            identity.check()?;
        }
        if self.connection.is_none()
            && let Some(options) = &self.reopen
        {
            self.connection = Some(options.connect().await.map_err(broken)?);
            tracing::info!("the database was opened again");
        }
        self.connection.as_mut().ok_or_else(|| StoreError::Unavailable("the connection is gone".into()))
    }

    /// Leaves a transaction that failed.
    async fn give_up(&mut self) {
        let Some(mut connection) = self.connection.take() else { return };
        // SQLite may have rolled back by itself; then there is nothing left to roll back.
        let _ = execute(&mut connection, "ROLLBACK").await;
        if self.reopen.is_none() {
            self.connection = Some(connection);
        } else {
            let _ = connection.close().await;
        }
    }

    async fn close(self) {
        if let Some(connection) = self.connection {
            let _ = connection.close().await;
        }
    }
}

/// A piece of work whose answer waits for the commit.
trait Job: Send {
    /// Whether somebody still waits for it.
    fn is_wanted(&self) -> bool;

    fn failing(&self) -> Failing;

    /// Does the work and keeps its answer.
    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection, now: DateTime<Utc>) -> BoxFuture<'c, Verdict>;

    /// Answers, with the kept answer if the transaction was committed.
    fn answer(self: Box<Self>, committed: Result<(), StoreError>);
}

/// What becomes of a job's changes.
enum Verdict {
    Keep,
    /// They are undone, for this reason.
    RollBack(String),
    /// The connection is in trouble, and the whole transaction with it.
    GiveUp(StoreError),
}

struct Call<T, W> {
    work: Option<W>,
    failing: Failing,
    outcome: Option<Result<T, StoreError>>,
    caller: oneshot::Sender<Result<T, StoreError>>,
}

impl<T: Send + 'static, W: Work<T>> Job for Call<T, W> {
    fn is_wanted(&self) -> bool {
        !self.caller.is_closed()
    }

    fn failing(&self) -> Failing {
        self.failing
    }

    fn run<'c>(&'c mut self, connection: &'c mut SqliteConnection, now: DateTime<Utc>) -> BoxFuture<'c, Verdict> {
        let Some(work) = self.work.take() else {
            return futures::future::ready(Verdict::RollBack("it was run before".into())).boxed();
        };
        async move {
            let outcome = AssertUnwindSafe(async move { work(connection, now).await })
                .catch_unwind()
                .await
                .unwrap_or_else(|_| Err(StoreError::Broken("a write panicked".into())));
            let verdict = match &outcome {
                Ok(_) => Verdict::Keep,
                Err(StoreError::Unavailable(reason)) => Verdict::GiveUp(StoreError::Unavailable(reason.clone())),
                Err(error) => Verdict::RollBack(error.to_string()),
            };
            self.outcome = Some(outcome);
            verdict
        }
        .boxed()
    }

    fn answer(self: Box<Self>, committed: Result<(), StoreError>) {
        let outcome = match (committed, self.outcome) {
            (Ok(()), Some(outcome)) => outcome,
            (Ok(()), None) => Err(StoreError::Broken("a write was not run".into())),
            // It failed by itself, and may have taken the others along: to do the same again would not help.
            (Err(_), Some(Err(error @ StoreError::Broken(_)))) => Err(error),
            (Err(error), _) => Err(error),
        };
        // Nobody there any more: the answer is not needed.
        let _ = self.caller.send(outcome);
    }
}

async fn serve(
    mut waiting: mpsc::Receiver<Box<dyn Job>>,
    mut line: Line,
    turn: Turn,
    now: Arc<Now>,
    lock: Option<File>,
    trouble: Trouble,
) {
    let mut batch = Vec::with_capacity(BATCH);
    while waiting.recv_many(&mut batch, BATCH).await > 0 {
        // Plugins write too: in line, so that nobody is passed over for as long as SQLite would wait.
        let turn = turn.lock().await;
        batch.retain(|job| job.is_wanted());
        let watch = if trouble.found().is_some() { Watch::Changes } else { Watch::Nothing };
        let committed = match batch.is_empty() {
            true => Ok(Written::NothingKnown),
            false => commit_together(&mut line, &mut batch, &now, watch).await,
        };
        match &committed {
            Err(error) => {
                tracing::warn!(%error, jobs = batch.len(), "writes were not committed");
                line.give_up().await;
                trouble.note(Some(error.clone()));
            }
            Ok(Written::Rows) => trouble.note(None),
            Ok(Written::NothingKnown) => {}
        }
        let committed = committed.map(drop);
        drop(turn);
        for job in batch.drain(..) {
            job.answer(committed.clone());
        }
    }
    line.close().await;
    // Another process may open the file only now.
    drop(lock);
}

/// What is looked at while jobs run.
#[derive(Clone, Copy)]
enum Watch {
    /// Whether they change rows: a statement before and after each.
    Changes,
    Nothing,
}

impl Watch {
    /// Runs a job, and tells what it has written if it is kept.
    async fn run(
        self,
        job: &mut Box<dyn Job>,
        connection: &mut SqliteConnection,
        now: DateTime<Utc>,
    ) -> (Verdict, Written) {
        let before = self.changes(connection).await;
        let verdict = job.run(connection, now).await;
        let after = if matches!(verdict, Verdict::Keep) { self.changes(connection).await } else { None };
        (verdict, if before.is_some() && after > before { Written::Rows } else { Written::NothingKnown })
    }

    /// How many rows the connection has changed since it was opened, those included whose changes were undone.
    async fn changes(self, connection: &mut SqliteConnection) -> Option<i64> {
        match self {
            Self::Changes => sqlx::query_scalar("SELECT total_changes()").fetch_one(connection).await.ok(),
            Self::Nothing => None,
        }
    }
}

/// What is known to have been written by what was kept.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Written {
    Rows,
    NothingKnown,
}

async fn commit_together(
    line: &mut Line,
    batch: &mut [Box<dyn Job>],
    now: &Now,
    watch: Watch,
) -> Result<Written, StoreError> {
    let connection = line.connection().await?;
    if let [job] = batch {
        // The transaction is its savepoint.
        execute(connection, "BEGIN IMMEDIATE").await?;
        let (verdict, written) = watch.run(job, connection, now.now()).await;
        match verdict {
            Verdict::Keep => execute(connection, "COMMIT").await?,
            Verdict::RollBack(_) => execute(connection, "ROLLBACK").await?,
            Verdict::GiveUp(error) => return Err(error),
        }
        return Ok(written);
    }
    let (mut before, mut written) = (None, Written::NothingKnown);
    for job in batch.iter_mut().filter(|job| job.is_wanted()) {
        let failing = job.failing();
        // Two statements in one text are one hop to SQLite's thread. A savepoint stays open until the next job begins.
        let opening = match (before.replace(failing), failing) {
            (None, Failing::Alone) => Some("BEGIN IMMEDIATE; SAVEPOINT job"),
            (None, Failing::Together) => Some("BEGIN IMMEDIATE"),
            (Some(Failing::Alone), Failing::Alone) => Some("RELEASE job; SAVEPOINT job"),
            (Some(Failing::Alone), Failing::Together) => Some("RELEASE job"),
            (Some(Failing::Together), Failing::Alone) => Some("SAVEPOINT job"),
            (Some(Failing::Together), Failing::Together) => None,
        };
        if let Some(opening) = opening {
            execute(connection, opening).await?;
        }
        let (verdict, written_by_job) = watch.run(job, connection, now.now()).await;
        if written_by_job == Written::Rows {
            written = Written::Rows;
        }
        match (verdict, failing) {
            (Verdict::Keep, _) => {}
            (Verdict::RollBack(_), Failing::Alone) => execute(connection, "ROLLBACK TO job").await?,
            (Verdict::RollBack(reason), Failing::Together) => return Err(StoreError::Unavailable(reason)),
            (Verdict::GiveUp(error), _) => return Err(error),
        }
    }
    match before {
        None => {}
        Some(Failing::Alone) => execute(connection, "RELEASE job; COMMIT").await?,
        Some(Failing::Together) => execute(connection, "COMMIT").await?,
    }
    Ok(written)
}

/// Runs a statement about the transaction itself: if that fails, nothing of it was written.
pub(super) async fn execute(connection: &mut SqliteConnection, statement: &'static str) -> Result<(), StoreError> {
    sqlx::query(statement).execute(connection).await.map(drop).map_err(|error| match broken(error) {
        StoreError::Broken(reason) => StoreError::Unavailable(reason),
        error => error,
    })
}
