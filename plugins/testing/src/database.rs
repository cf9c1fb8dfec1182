use std::env;
use std::panic::{AssertUnwindSafe, resume_unwind};
use std::sync::Arc;

use futures::FutureExt;
use punctual_sdk::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use tempfile::TempDir;
use uuid::Uuid;

/// Where a test's data is.
#[derive(Debug, Clone, Default)]
pub(crate) enum Place {
    /// In memory.
    #[default]
    Memory,
    /// In a file, which is gone with the last who knows of it.
    File(Arc<TempDir>),
    /// In a schema of a PostgreSQL server.
    Schema { server: String, name: String },
}

impl Place {
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Memory => "sqlite::memory:".to_owned(),
            Self::File(folder) => format!("sqlite://{}", folder.path().join("punctual.db").display()),
            Self::Schema { server, name } => {
                let separator = if server.contains('?') { '&' } else { '?' };
                format!("{server}{separator}options=-csearch_path%3D{name}")
            }
        }
    }

    async fn execute(&self, sql: String) {
        if let Self::Schema { server, .. } = self {
            let mut connection = PgConnection::connect(server).await.expect("the server at TEST_DATABASE_URL");
            sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.expect("the schema is made or dropped");
        }
    }
}

/// Which database a test runs on: what [`on_both_databases!`](crate::on_both_databases) gives to each of its tests.
#[derive(Debug, Clone, Default)]
pub struct TestDatabase(pub(crate) Place);

impl TestDatabase {
    /// One whose data outlives the node, for tests that start another on it.
    ///
    /// # Panics
    /// When there is no room for a file.
    #[must_use]
    pub fn that_lasts(self) -> Self {
        match self.0 {
            Place::Memory => Self(Place::File(Arc::new(tempfile::tempdir().expect("a folder")))),
            place => Self(place),
        }
    }
}

/// Runs a test on a SQLite database in memory.
pub fn on_sqlite<T: Future<Output = ()>>(test: impl FnOnce(TestDatabase) -> T) {
    block_on(test(TestDatabase::default()));
}

/// Runs a test in a fresh schema of the PostgreSQL server at `TEST_DATABASE_URL`, which is gone afterwards. Without one it
/// says so, and fails where nothing may be skipped (`CI` is set).
///
/// # Panics
/// When the server does not answer.
pub fn on_postgres<T: Future<Output = ()>>(test: impl FnOnce(TestDatabase) -> T) {
    let Some(server) = env::var("TEST_DATABASE_URL").ok().filter(|url| !url.is_empty()) else {
        println!("skipped: TEST_DATABASE_URL is not set");
        assert!(env::var_os("CI").is_none(), "CI skips no database: set TEST_DATABASE_URL");
        return;
    };
    let name = format!("plugin_{}", Uuid::now_v7().simple());
    let place = Place::Schema { server, name: name.clone() };
    block_on(place.execute(format!("CREATE SCHEMA {name}")));
    let _dropped_at_the_end = DropOnDrop(place.clone(), name);
    block_on(test(TestDatabase(place)));
}

struct DropOnDrop(Place, String);

impl Drop for DropOnDrop {
    fn drop(&mut self) {
        let sql = format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS {} CASCADE", self.1);
        block_on(self.0.execute(sql));
    }
}

/// Runs a future on a runtime of its own, which is gone, with all its connections, before this returns.
fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    match runtime.block_on(AssertUnwindSafe(future).catch_unwind()) {
        Ok(value) => value,
        Err(panic) => {
            runtime.shutdown_background();
            resume_unwind(panic)
        }
    }
}

/// Makes tests of functions that take a [`TestDatabase`], each on both databases.
///
/// ```
/// use punctual_testing::{TestDatabase, on_both_databases};
///
/// async fn it_works(database: TestDatabase) {
///     // let punctual = punctual_testing::setup(MyPlugin).database(database).start().await;
///     let _ = database;
/// }
///
/// on_both_databases![it_works];
/// ```
#[macro_export]
macro_rules! on_both_databases {
    ($($test:ident),* $(,)?) => {
        mod sqlite {
            $(#[test]
            fn $test() {
                $crate::on_sqlite(super::$test);
            })*
        }
        mod postgres {
            $(#[test]
            fn $test() {
                $crate::on_postgres(super::$test);
            })*
        }
    };
}
