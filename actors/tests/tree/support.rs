//! What the tests of the tree stand on.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::future::BoxFuture;
use punctual_actors::{Deps, Handlers, Running, Settings};
use punctual_domain::alert::Address;
use punctual_domain::clock::FakeClock;
use punctual_domain::coordination::Alone;
use punctual_domain::delivery::Transports;
use punctual_domain::id::{NodeId, TaskId};
use punctual_domain::store::{Creation, Store, TaskWithAttempts};
use punctual_domain::task::{NewTask, TaskStatus};
use punctual_domain::time::ZoneDatabase;
use punctual_sdk::{Attempt, Handler, Outcome, async_trait};
use punctual_store::{Options, Scratch};

/// A store, a clock, and a folder that lives as long as they do.
pub(crate) struct World {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: FakeClock,
    /// What the trees it starts send messages through.
    pub(crate) transports: Transports,
    /// Where their alerts go.
    pub(crate) alerts: Vec<Address>,
    _folder: tempfile::TempDir,
    /// Where it is on PostgreSQL.
    scratch: Option<Scratch>,
}

impl World {
    /// On SQLite.
    pub(crate) async fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("tree.db").display());
        Self::at(&url, folder, None).await
    }

    /// On the PostgreSQL for tests, if there is one. To be removed in the end.
    pub(crate) async fn on_postgres() -> Option<Self> {
        let Ok(url) = std::env::var("TEST_DATABASE_URL") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_DATABASE_URL is not set, and CI skips nothing");
            eprintln!("skipped: TEST_DATABASE_URL is not set");
            return None;
        };
        let scratch = Scratch::create(&url).await.unwrap();
        let url = scratch.url().to_owned();
        Some(Self::at(&url, tempfile::tempdir().unwrap(), Some(scratch)).await)
    }

    async fn at(url: &str, folder: tempfile::TempDir, scratch: Option<Scratch>) -> Self {
        let clock = FakeClock::at_text("2026-11-16T12:00:00Z");
        let options = Options { clock: Some(Arc::new(clock.clone())), ..Options::default() };
        let store = punctual_store::connect(url, options).await.unwrap();
        Self { store, clock, transports: Transports::default(), alerts: Vec::new(), _folder: folder, scratch }
    }

    /// Leaves nothing behind.
    pub(crate) async fn remove(self) {
        self.store.close().await.unwrap();
        if let Some(scratch) = self.scratch {
            scratch.remove().await.unwrap();
        }
    }

    pub(crate) async fn start(&self, handlers: Handlers) -> Running {
        self.start_with(handlers, Settings::default()).await
    }

    pub(crate) async fn start_with(&self, handlers: Handlers, settings: Settings) -> Running {
        punctual_actors::start(Deps { settings, ..self.deps(handlers) }).await.unwrap()
    }

    pub(crate) fn deps(&self, handlers: Handlers) -> Deps {
        Deps {
            store: self.store.clone(),
            clock: Arc::new(self.clock.clone()),
            zones: ZoneDatabase::bundled(),
            coordination: Arc::new(Alone),
            node: NodeId::generate(),
            handlers,
            transports: self.transports.clone(),
            alerts: self.alerts.clone(),
            settings: Settings::default(),
            happened: Arc::default(),
        }
    }

    pub(crate) async fn add(&self, task: NewTask) -> TaskId {
        let id = task.id;
        let made = self.store.create_tasks(vec![task], None).await.unwrap();
        assert!(matches!(made, Creation::Made(_)));
        id
    }

    pub(crate) async fn task(&self, id: TaskId) -> TaskWithAttempts {
        self.store.task(id).await.unwrap().unwrap()
    }

    /// Waits until the task has that status.
    pub(crate) async fn until(&self, id: TaskId, status: TaskStatus) -> TaskWithAttempts {
        eventually(|| async {
            let found = self.task(id).await;
            (found.task.status == status).then_some(found)
        })
        .await
    }
}

/// Asks again and again until there is an answer; a test that never gets one is ended by the test runner.
pub(crate) async fn eventually<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    loop {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
}

pub(crate) fn task(topic: &str) -> NewTask {
    NewTask::new(topic.parse().unwrap())
}

struct Does<F>(F);

#[async_trait]
impl<F: Fn(Attempt) -> BoxFuture<'static, Outcome> + Send + Sync> Handler for Does<F> {
    async fn handle(&self, attempt: Attempt) -> Outcome {
        (self.0)(attempt).await
    }
}

pub(crate) fn does<T: Future<Output = Outcome> + Send + 'static>(
    work: impl Fn(Attempt) -> T + Send + Sync + 'static,
) -> impl Handler {
    Does(move |attempt| -> BoxFuture<'static, Outcome> { Box::pin(work(attempt)) })
}
