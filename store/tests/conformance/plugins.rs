//! What plugins do with the database: tables of their own, and tasks in their own transactions.

use std::time::Duration;

use punctual_domain::retry::RetryPolicy;
use punctual_domain::store::MigrationError;
use punctual_domain::task::TaskStatus;
use punctual_domain::topic::{Route, TopicDefinition};
use punctual_sdk::{EnqueueError, Error, Migration, NewTask, on_either};

use crate::support::*;

const FIRST: Migration = migration("1_notes", "CREATE TABLE notes (text TEXT PRIMARY KEY)");
const SECOND: Migration = migration("2_first_note", "INSERT INTO notes VALUES ('first')");

const fn migration(name: &'static str, statements: &'static str) -> Migration {
    Migration { name, sqlite: statements, postgres: statements }
}

async fn notes(world: &World) -> i64 {
    let count = "SELECT count(*) FROM notes";
    on_either!(world.database(), |pool| sqlx::query_scalar(count).fetch_one(pool).await.unwrap())
}

pub(crate) async fn a_plugins_migrations_are_applied_in_order_and_once(world: World) {
    assert_eq!(world.missing_migrations("memo", &[FIRST, SECOND]).await, Ok(vec!["1_notes", "2_first_note"]));
    world.migrate_plugin("memo", &[FIRST]).await.unwrap();
    assert_eq!(world.missing_migrations("memo", &[FIRST, SECOND]).await, Ok(vec!["2_first_note"]));
    for _ in 0..2 {
        world.migrate_plugin("memo", &[FIRST, SECOND]).await.unwrap();
        assert_eq!(notes(&world).await, 1);
    }
    assert_eq!(world.missing_migrations("memo", &[FIRST, SECOND]).await, Ok(vec![]));
    // Another plugin's are another's.
    assert_eq!(world.missing_migrations("other", &[SECOND]).await, Ok(vec!["2_first_note"]));
    let world = world.reopen().await;
    world.migrate_plugin("memo", &[FIRST, SECOND]).await.unwrap();
    assert_eq!(world.database.count("punctual_plugin_migrations").await, 2);
}

pub(crate) async fn a_migration_that_was_applied_in_another_form_is_refused(world: World) {
    world.migrate_plugin("memo", &[FIRST]).await.unwrap();
    let refused = MigrationError::Changed { plugin: "memo".into(), number: 1, name: "1_notes".into() };
    for changed in [migration("1_notes", "SELECT 1"), migration("1_renamed", FIRST.sqlite)] {
        assert_eq!(world.migrate_plugin("memo", &[changed, SECOND]).await, Err(refused.clone()));
        assert_eq!(world.missing_migrations("memo", &[changed]).await, Err(refused.clone()));
    }
    assert_eq!(notes(&world).await, 0);
}

pub(crate) async fn a_database_ahead_of_the_plugin_lacks_nothing(world: World) {
    world.migrate_plugin("memo", &[FIRST, SECOND]).await.unwrap();
    world.migrate_plugin("memo", &[FIRST]).await.unwrap();
    assert_eq!(world.missing_migrations("memo", &[FIRST]).await, Ok(vec![]));
}

pub(crate) async fn a_migration_that_fails_leaves_nothing_of_itself(world: World) {
    let broken = migration("2_broken", "INSERT INTO notes VALUES ('half'); INSERT INTO nowhere VALUES (1)");
    let failed = world.migrate_plugin("memo", &[FIRST, broken, SECOND]).await.unwrap_err();
    assert!(matches!(&failed, MigrationError::Failed { name: "2_broken", .. }), "{failed:?}");
    assert!(failed.to_string().contains("nowhere"), "{failed}");
    assert_eq!(notes(&world).await, 0);
    // Put right, it goes on where it was.
    world.migrate_plugin("memo", &[FIRST, SECOND]).await.unwrap();
    assert_eq!(notes(&world).await, 1);
}

pub(crate) async fn eight_nodes_that_migrate_at_once_apply_each_migration_once(world: World) {
    let nodes = world.eight_nodes().await;
    let migrating = nodes.iter().map(|node| node.migrate_plugin("memo", &[FIRST, SECOND]));
    for migrated in futures::future::join_all(migrating).await {
        migrated.unwrap();
    }
    assert_eq!(notes(&world).await, 1);
}

pub(crate) async fn a_task_in_a_plugins_transaction_is_there_once_it_commits(world: World) {
    world.migrate_plugin("memo", &[FIRST]).await.unwrap();
    let mut transaction = world.database().begin().await.unwrap();
    let id = transaction.enqueue(NewTask::new("mail").payload([1, 2])).await.unwrap();
    let insert = "INSERT INTO notes VALUES ($1)";
    on_either!(transaction, |connection| {
        sqlx::query(insert).bind("written").execute(connection).await.unwrap();
    });
    transaction.commit().await.unwrap();
    let task = world.task(punctual_domain::id::TaskId(id)).await.unwrap().unwrap().task;
    assert_eq!((task.status, task.payload.as_str(), task.run_at), (TaskStatus::Pending, "[1,2]", world.now()));
    assert_eq!(notes(&world).await, 1);
}

pub(crate) async fn a_task_in_a_plugins_transaction_never_was_if_it_is_dropped(world: World) {
    let mut transaction = world.database().begin().await.unwrap();
    let dropped = transaction.enqueue(NewTask::new("mail")).await.unwrap();
    drop(transaction);
    let mut transaction = world.database().begin().await.unwrap();
    let rolled_back = transaction.enqueue(NewTask::new("mail")).await.unwrap();
    transaction.rollback().await.unwrap();
    for id in [dropped, rolled_back] {
        assert_eq!(world.task(punctual_domain::id::TaskId(id)).await, Ok(None));
    }
}

pub(crate) async fn an_enqueued_task_takes_what_it_leaves_open_from_its_topic(world: World) {
    let mut definition = TopicDefinition::new("mail.*".parse().unwrap(), Route::Handler);
    definition.timeout_seconds = Some(60);
    definition.retry = Some(RetryPolicy { attempts: 5, ..RetryPolicy::default() });
    world.put_topic(&definition).await.unwrap();
    let task = NewTask::new("mail.send").after(Duration::from_secs(90)).metadata("ownerId", "o").dedupe_key("k");
    let id = world.database().enqueue(task.clone()).await.unwrap();
    let written = world.task(punctual_domain::id::TaskId(id)).await.unwrap().unwrap().task;
    assert_eq!((written.timeout_seconds, written.retry.attempts), (60, 5));
    assert_eq!((written.run_at, written.metadata["ownerId"].as_str()), (world.in_secs(90), "o"));
    // The key's living task is the one.
    assert_eq!(world.database().enqueue(task).await.unwrap(), id);
}

pub(crate) async fn a_task_that_cannot_be_is_refused_by_field(world: World) {
    let refused = world.database().enqueue(NewTask::new("two words").priority(1000)).await.unwrap_err();
    assert!(matches!(&refused, EnqueueError::Invalid(_)), "{refused:?}");
    assert!(refused.to_string().contains("topic: ") && refused.to_string().contains("priority: "), "{refused}");
    assert_eq!(world.database.count("punctual_tasks").await, 0);
}

pub(crate) async fn a_client_request_id_makes_one_task_of_a_plugin(world: World) {
    let once = || NewTask::new("mail").client_request_id("once");
    world.database().enqueue(once()).await.unwrap();
    let refused = world.database().enqueue(once()).await.unwrap_err();
    assert!(matches!(&refused, EnqueueError::ClientRequestIdInUse(id) if id == "once"), "{refused:?}");
    assert_eq!(world.database.count("punctual_tasks").await, 1);
}

pub(crate) async fn a_task_cancelled_in_a_plugins_transaction_ends_if_that_commits(world: World) {
    let id = world.database().enqueue(NewTask::new("mail").after(Duration::from_secs(60))).await.unwrap();
    let status = async || world.task(punctual_domain::id::TaskId(id)).await.unwrap().unwrap().task.status;
    let mut dropped = world.database().begin().await.unwrap();
    dropped.cancel(id).await.unwrap();
    drop(dropped);
    assert_eq!(status().await, TaskStatus::Pending);
    // A second time, and of a task that never was, it changes nothing.
    for id in [id, id, uuid::Uuid::now_v7()] {
        let mut transaction = world.database().begin().await.unwrap();
        transaction.cancel(id).await.unwrap();
        transaction.commit().await.unwrap();
        assert_eq!(status().await, TaskStatus::Cancelled);
    }
}

pub(crate) async fn plugins_and_the_store_write_side_by_side_and_nobody_fails(world: World) {
    world.migrate_plugin("memo", &[FIRST]).await.unwrap();
    let world = &world;
    let plugin = |writer: u32| async move {
        for i in 0..10 {
            let mut transaction = world.database().begin().await?;
            let (insert, count) = ("INSERT INTO notes VALUES ($1)", "SELECT count(*) FROM notes");
            on_either!(transaction, |connection| {
                sqlx::query(insert).bind(format!("{writer}-{i}")).execute(&mut *connection).await?;
                let _: i64 = sqlx::query_scalar(count).fetch_one(connection).await?;
            });
            transaction.enqueue(NewTask::new("mail")).await?;
            transaction.commit().await?;
        }
        Ok::<(), Error>(())
    };
    let store = |_| async {
        for _ in 0..10 {
            world.add(task("mail")).await;
        }
    };
    let plugins = futures::future::join_all((0..4).map(plugin));
    let (plugins, _) = futures::future::join(plugins, futures::future::join_all((0..4).map(store))).await;
    for written in plugins {
        written.unwrap();
    }
    assert_eq!((notes(world).await, world.database.count("punctual_tasks").await), (40, 80));
}
