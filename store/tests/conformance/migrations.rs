//! The schema: made, checked, and refused where it is too new.

use punctual_domain::store::{Store, TaskFilter};
use punctual_store::{ConnectError, MIGRATIONS, Migrate, Options, SchemaState, connect, schema_state};
use std::sync::Arc;

use crate::support::*;

async fn open(database: &Database, migrate: Migrate) -> Result<Arc<dyn Store>, ConnectError> {
    connect(&database.url(), Options { migrate, ..options(None) }).await
}

fn complete() -> SchemaState {
    let oldest_compatible = MIGRATIONS.iter().map(|migration| migration.oldest_compatible).max().unwrap();
    SchemaState { version: SchemaState::ours(), oldest_compatible }
}

/// The sentence with which a database was refused.
fn refusal(opened: Result<Arc<dyn Store>, ConnectError>) -> String {
    match opened {
        Err(ConnectError::Refused(sentence)) => sentence,
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("it was opened"),
    }
}

pub(crate) async fn connecting_makes_the_schema(world: World) {
    let empty = world.database.empty_sibling().await;
    assert_eq!(schema_state(&empty.url()).await.unwrap(), SchemaState::EMPTY);
    let store = open(&empty, Migrate::Run).await.unwrap();
    assert_eq!(store.tasks(&TaskFilter::default(), punctual_domain::store::Page::first(1)).await, Ok(vec![]));
    assert_eq!(schema_state(&empty.url()).await.unwrap(), complete());
}

pub(crate) async fn an_empty_database_is_refused_where_nothing_may_change(world: World) {
    let empty = world.database.empty_sibling().await;
    let sentence = refusal(open(&empty, Migrate::Check).await);
    assert!(sentence.contains("punctual migrate"), "{sentence}");
    assert_eq!(schema_state(&empty.url()).await.unwrap(), SchemaState::EMPTY);
}

pub(crate) async fn a_complete_schema_is_accepted_where_nothing_may_change(world: World) {
    let pending = world.add(task("mail")).await;
    let database = world.close();
    let store = open(&database, Migrate::Check).await.unwrap();
    assert_eq!(store.task(pending.id).await.unwrap().unwrap().task, pending);
}

pub(crate) async fn each_migration_is_recorded_once(world: World) {
    assert_eq!(world.database.count("punctual_schema").await, MIGRATIONS.len() as i64);
    let world = world.reopen().await;
    assert_eq!(world.database.count("punctual_schema").await, MIGRATIONS.len() as i64);
}

/// Records a migration that this binary does not know, and that leaves nothing to binaries older than itself.
const FROM_THE_FUTURE: &str = "
    INSERT INTO punctual_schema (version, name, checksum, oldest_compatible, applied_at)
    SELECT version + 1, 'from_the_future', checksum, version + 1, applied_at
    FROM punctual_schema ORDER BY version DESC LIMIT 1";

/// The same, but this binary still works with what it leaves.
const FROM_TOMORROW: &str = "
    INSERT INTO punctual_schema (version, name, checksum, oldest_compatible, applied_at)
    SELECT version + 1, 'from_tomorrow', checksum, version, applied_at
    FROM punctual_schema ORDER BY version DESC LIMIT 1";

pub(crate) async fn a_newer_schema_that_needs_a_newer_binary_is_refused(world: World) {
    let database = world.close();
    database.execute(FROM_THE_FUTURE).await;
    for migrate in [Migrate::Run, Migrate::Check] {
        let sentence = refusal(open(&database, migrate).await);
        assert!(sentence.contains("install a newer punctual"), "{sentence}");
    }
    assert_eq!(database.count("punctual_schema").await, MIGRATIONS.len() as i64 + 1);
}

pub(crate) async fn what_a_newer_schema_is_can_be_told(world: World) {
    let database = world.close();
    database.execute(FROM_THE_FUTURE).await;
    let newer = SchemaState { version: SchemaState::ours() + 1, oldest_compatible: SchemaState::ours() + 1 };
    assert_eq!(schema_state(&database.url()).await.unwrap(), newer);
}

pub(crate) async fn a_newer_schema_that_we_can_work_on_is_accepted(world: World) {
    let pending = world.add(task("mail")).await;
    let database = world.close();
    database.execute(FROM_TOMORROW).await;
    for migrate in [Migrate::Run, Migrate::Check] {
        let store = open(&database, migrate).await.unwrap();
        assert_eq!(store.task(pending.id).await.unwrap().unwrap().task, pending);
    }
}
