//! Runs a behaviour on a fresh database, and removes that afterwards, however the behaviour ended.

use std::env;
use std::future::Future;
use std::panic::{AssertUnwindSafe, resume_unwind};

use futures::FutureExt;
use punctual_domain::clock::FakeClock;
use uuid::Uuid;

use super::{Database, World};

/// The instant at which every behaviour begins.
pub(crate) const BEGINNING: &str = "2026-03-02T12:00:00Z";

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
    on_fresh(Database::Postgres { server, schema }, behaviour);
}

/// Runs a behaviour on a fresh database of that server, behind the pooler at `TEST_PGBOUNCER_URL`.
pub(crate) fn on_pooled<B: Future<Output = ()>>(behaviour: impl FnOnce(World) -> B) {
    let Some(server) = postgres_server() else { return };
    let Some(pooler) = env::var("TEST_PGBOUNCER_URL").ok().filter(|url| !url.is_empty()) else {
        println!("skipped: TEST_PGBOUNCER_URL is not set");
        assert!(env::var_os("CI").is_none(), "CI skips no pooler: set TEST_PGBOUNCER_URL");
        return;
    };
    let name = format!("conformance_{}", Uuid::now_v7().simple());
    let parsed = |url: String| Box::new(url.parse().expect("a URL of PostgreSQL"));
    on_fresh(Database::Pooled { server: parsed(server), pooler: parsed(pooler), name }, behaviour);
}

fn on_fresh<B: Future<Output = ()>>(database: Database, behaviour: impl FnOnce(World) -> B) {
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
