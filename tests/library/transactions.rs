//! Tasks in a transaction of the program's own.

use punctual::{Created, Error, NewTask, Page, Punctual, TaskFilter};
use sqlx::postgres::PgListener;
use sqlx::{PgPool, SqlitePool};

use crate::support::Database;
use crate::{ended, much_later, start};

async fn sqlite_pool(database: &Database) -> SqlitePool {
    let pool = SqlitePool::connect(&database.url).await.unwrap();
    sqlx::query("CREATE TABLE users (name TEXT)").execute(&pool).await.unwrap();
    pool
}

async fn postgres_pool(database: &Database) -> PgPool {
    let pool = PgPool::connect(&database.url).await.unwrap();
    sqlx::query("CREATE TABLE users (name text)").execute(&pool).await.unwrap();
    pool
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_on_sqlite_makes_the_task_and_a_rollback_makes_nothing() {
    let database = Database::sqlite();
    let (punctual, mut seen) = start(&database).await;
    let pool = sqlite_pool(&database).await;
    let mut transaction = pool.begin_with("BEGIN IMMEDIATE").await.unwrap();
    let gone = punctual.enqueue_in(&mut transaction, NewTask::new("test.a").payload("gone")).await.unwrap().into_task();
    transaction.rollback().await.unwrap();
    assert_eq!(punctual.get(gone.id).await, Ok(None));

    let mut transaction = pool.begin().await.unwrap();
    let kept = punctual.enqueue_in(&mut transaction, NewTask::new("test.a").payload("kept")).await.unwrap().into_task();
    sqlx::query("INSERT INTO users VALUES ('Ada')").execute(&mut *transaction).await.unwrap();
    assert_eq!(punctual.get(kept.id).await, Ok(None), "nobody else sees it yet");
    transaction.commit().await.unwrap();
    punctual.wake();
    assert_eq!(seen.recv().await.unwrap(), r#""kept""#);
    assert_eq!(ended(&punctual, kept.id).await.task.result.unwrap().as_str(), r#""seen""#);
    punctual.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_on_sqlite_that_nobody_tells_of_is_found_too() {
    let database = Database::sqlite();
    let (punctual, mut seen) = start(&database).await;
    let pool = sqlite_pool(&database).await;
    let mut transaction = pool.begin().await.unwrap();
    punctual.enqueue_in(&mut transaction, NewTask::new("test.a").payload(1)).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), "1");
    punctual.stop().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_commit_on_postgres_makes_the_task_and_a_rollback_makes_nothing() {
    let Some(database) = Database::postgres().await else { return };
    let (punctual, mut seen) = start(&database).await;
    let pool = postgres_pool(&database).await;
    let mut transaction = pool.begin().await.unwrap();
    let gone = punctual.enqueue_in(&mut transaction, NewTask::new("test.a").payload("gone")).await.unwrap().into_task();
    transaction.rollback().await.unwrap();
    assert_eq!(punctual.get(gone.id).await, Ok(None));

    let mut transaction = pool.begin().await.unwrap();
    let kept = punctual.enqueue_in(&mut transaction, NewTask::new("test.a").payload("kept")).await.unwrap().into_task();
    sqlx::query("INSERT INTO users VALUES ('Ada')").execute(&mut *transaction).await.unwrap();
    assert_eq!(punctual.get(kept.id).await, Ok(None), "nobody else sees it yet");
    transaction.commit().await.unwrap();
    assert_eq!(seen.recv().await.unwrap(), r#""kept""#);
    assert_eq!(ended(&punctual, kept.id).await.task.result.unwrap().as_str(), r#""seen""#);
    punctual.stop().await.unwrap();
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn on_postgres_a_commit_and_a_plain_write_notify_all_nodes_and_a_rollback_does_not() {
    let Some(database) = Database::postgres().await else { return };
    let punctual = Punctual::builder().database(&database.url).connect().await.unwrap();
    let pool = postgres_pool(&database).await;
    let mut listener = PgListener::connect(&database.url).await.unwrap();
    listener.listen_all(["punctual_tasks", "users"]).await.unwrap();

    let mut transaction = pool.begin().await.unwrap();
    punctual.enqueue_in(&mut transaction, much_later("a")).await.unwrap();
    transaction.rollback().await.unwrap();
    sqlx::query("NOTIFY users").execute(&pool).await.unwrap();
    assert_eq!(listener.recv().await.unwrap().channel(), "users");

    let mut transaction = pool.begin().await.unwrap();
    punctual.enqueue_in(&mut transaction, much_later("a")).await.unwrap();
    transaction.commit().await.unwrap();
    assert_eq!(listener.recv().await.unwrap().channel(), "punctual_tasks");
    punctual.enqueue(much_later("a")).await.unwrap();
    assert_eq!(listener.recv().await.unwrap().channel(), "punctual_tasks");
    punctual.stop().await.unwrap();
    pool.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_task_leaves_the_transaction_as_it_was() {
    let Some(postgres) = Database::postgres().await else { return };
    let punctual = Punctual::builder().database(&postgres.url).connect().await.unwrap();
    let pool = postgres_pool(&postgres).await;
    punctual.enqueue(much_later("a").client_request_id("c")).await.unwrap();
    let living = punctual.enqueue(much_later("a").dedupe_key("d")).await.unwrap().into_task();

    let mut transaction = pool.begin().await.unwrap();
    sqlx::query("INSERT INTO users VALUES ('Ada')").execute(&mut *transaction).await.unwrap();
    let refused = punctual.enqueue_in(&mut transaction, NewTask::new("a b")).await;
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    let refused = punctual.enqueue_in(&mut transaction, much_later("a").client_request_id("c")).await;
    assert_eq!(refused, Err(Error::ClientRequestIdInUse("c".into())));
    let deduplicated = punctual.enqueue_in(&mut transaction, much_later("a").dedupe_key("d")).await.unwrap();
    assert_eq!(deduplicated, Created::Deduplicated(living));
    transaction.commit().await.unwrap();
    let users: i64 = sqlx::query_scalar("SELECT count(*) FROM users").fetch_one(&pool).await.unwrap();
    assert_eq!(users, 1);
    assert_eq!(punctual.list(&TaskFilter::default(), Page::first(9)).await.unwrap().len(), 2);

    let sqlite = Database::sqlite();
    let other = sqlite_pool_of_nobody(&sqlite).await;
    let mut transaction = other.begin().await.unwrap();
    let refused = punctual.enqueue_in(&mut transaction, much_later("a")).await;
    assert_eq!(refused, Err(Error::WrongDatabase { given: "SQLite", ours: "PostgreSQL" }));
    drop(transaction);
    punctual.stop().await.unwrap();
    pool.close().await;
}

/// A file that is not Punctual's.
async fn sqlite_pool_of_nobody(database: &Database) -> SqlitePool {
    std::fs::write(database.url.trim_start_matches("sqlite://"), "").unwrap();
    SqlitePool::connect(&database.url).await.unwrap()
}
