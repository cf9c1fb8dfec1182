//! What holds for PostgreSQL alone.

use std::sync::{Mutex, mpsc};
use std::time::Duration;

use futures::future::join_all;
use punctual_domain::fire::DueSchedule;
use punctual_domain::store::{StoreError, Ticked};
use punctual_store::{MIGRATIONS, Options, connect};
use sqlx::{AssertSqlSafe, Connection, PgConnection};
use uuid::Uuid;

use crate::support::*;

#[test]
fn eight_nodes_that_start_at_once_make_one_schema() {
    on_postgres(async |world: World| {
        let empty = world.database.empty_sibling().await;
        let url = empty.url();
        let opened = join_all((0..8).map(|_| connect(&url, options(None)))).await;
        for store in opened {
            store.unwrap();
        }
        assert_eq!(empty.count("punctual_schema").await, MIGRATIONS.len() as i64);
    });
}

#[test]
fn an_unreachable_server_is_an_error_that_hides_the_password() {
    let error = block_on(connect("postgres://me:secret@127.0.0.1:1/nowhere", options(None)));
    let sentence = error.err().expect("nobody listens there").to_string();
    assert!(!sentence.contains("secret"), "{sentence}");
}

#[test]
fn a_schedule_in_the_hands_of_another_node_is_passed_over() {
    on_postgres(async |world: World| {
        let schedule = world.every_minute("nightly").await;
        world.advance_secs(61);
        let (decides, is_deciding) = mpsc::channel();
        let (go_on, may_go_on) = mpsc::channel::<()>();
        let may_go_on = Mutex::new(may_go_on);
        let (url, options) = (world.database.url(), options(Some(world.clock.clone())));
        // On a thread and a runtime of its own, because the decision blocks.
        let deciding = std::thread::spawn(move || {
            block_on(async move {
                let decide = move |_: &DueSchedule, _| {
                    decides.send(()).unwrap();
                    // An error means that the test is over.
                    let _ = may_go_on.lock().unwrap().recv();
                    None
                };
                connect(&url, options).await.unwrap().tick(10, &decide).await.unwrap();
            });
        });
        tokio::task::spawn_blocking(move || is_deciding.recv().unwrap()).await.unwrap();
        assert_eq!(world.tick_by_the_rules().await, Ticked::default());
        go_on.send(()).unwrap();
        deciding.join().unwrap();
        assert_eq!(world.tick_by_the_rules().await.fired, 1);
        assert_eq!(world.schedule(schedule.id).await.unwrap().unwrap().fires_made, 1);
    });
}

#[test]
fn a_statement_that_takes_too_long_is_an_error_and_the_next_one_works() {
    on_postgres(async |world: World| {
        let impatient = Options { deadline: Duration::from_secs(2), ..options(None) };
        let store = connect(&world.database.url(), impatient).await.unwrap();
        let mut blocker = PgConnection::connect(&world.database.url()).await.unwrap();
        let mut blocking = blocker.begin().await.unwrap();
        sqlx::raw_sql("LOCK TABLE punctual_tasks").execute(&mut *blocking).await.unwrap();
        let late = store.create_tasks(vec![task("mail").build()], None).await;
        assert!(matches!(late, Err(StoreError::Unavailable(_))), "{late:?}");
        blocking.rollback().await.unwrap();
        store.create_tasks(vec![task("mail").build()], None).await.unwrap();
    });
}

/// A database of its own, so that its connections can be told from those of other tests.
#[test]
fn a_store_recovers_when_the_server_ends_its_connections() {
    let Some(server) = postgres_server() else { return };
    let name = format!("conformance_{}", Uuid::now_v7().simple());
    let (server_part, query) = server.split_once('?').map_or((server.as_str(), ""), |(left, right)| (left, right));
    let host =
        server_part.rfind('/').filter(|at| *at > "postgresql://".len()).map_or(server_part, |at| &server_part[..at]);
    let url = format!("{host}/{name}?{query}");
    let administer = async |sql: String| {
        let mut connection = PgConnection::connect(&server).await.unwrap();
        sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
    };
    block_on(administer(format!("CREATE DATABASE {name}")));
    let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        block_on(async {
            let store = connect(&url, options(None)).await.unwrap();
            let node = NodeStore { id: punctual_domain::id::NodeId::generate(), store };
            node.add(task("mail")).await;
            for _ in 0..3 {
                administer(format!("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{name}'"))
                    .await;
                // The first calls may meet dead connections: an ordinary error, no panic, no hang.
                let mut errors = 0;
                while let Err(error) = node.create(task("mail")).await {
                    assert!(matches!(error, StoreError::Unavailable(_)), "{error:?}");
                    errors += 1;
                    assert!(errors <= 20, "{error:?}");
                }
            }
            assert!(node.claim_up_to(9, "mail").await.len() >= 4);
        });
    }));
    block_on(administer(format!("DROP DATABASE {name} WITH (FORCE)")));
    if let Err(panic) = ended {
        std::panic::resume_unwind(panic);
    }
}
