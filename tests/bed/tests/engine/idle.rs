//! What nodes with nothing to do ask of their database.

use std::time::Duration;

use punctual_domain::task::{Due, NewTask};

use crate::bed::{queue_like, scaled};
use crate::cluster::leads;
use crate::postgres::Postgres;
use crate::support::{Database, Server};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_with_nothing_to_do_asks_the_database_less_than_once_a_second() {
    // Where no PostgreSQL is asked for, there may be none to start.
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return drop(Database::postgres().await);
    }
    let mut postgres = Postgres::start();
    let database = Database::on(&postgres.url()).await;
    log_statements(&database).await;
    let mut nodes = Vec::new();
    let mut before = 0;
    for (newcomer, count) in [("the leader", 1), ("a standby", 2), ("another standby", 3)] {
        nodes.push(Server::start(&database));
        assert_eq!(nodes.len(), count);
        while !leads(&nodes[0]).await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        let seconds = scaled(12, 120);
        // Whatever comes with the start is over.
        tokio::time::sleep(Duration::from_secs(3)).await;
        let asked = postgres.statements();
        tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
        let asked = postgres.statements() - asked;
        println!("{newcomer} adds {} statements a minute", (asked as i64 - before as i64) * 60 / seconds as i64);
        assert!(asked > 0 && asked < seconds * count, "{asked} statements in {seconds} s of {count} nodes");
        before = asked;
    }
    for node in nodes {
        node.stop();
    }
}

/// How many topics wait, each with so many tasks that are due much later.
const TOPICS: usize = 100;
const TASKS_EACH: usize = 1_000;
/// How much memory a node with these has at the most.
const MOST_MIB: f64 = 60.0;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_thousand_tasks_of_the_future_cost_a_node_nothing() {
    // Where no PostgreSQL is asked for, there may be none to start.
    if std::env::var_os("TEST_DATABASE_URL").is_none() {
        return drop(Database::postgres().await);
    }
    let mut postgres = Postgres::start();
    let database = Database::on(&postgres.url()).await;
    for topic in 0..TOPICS {
        let due = Due::After(Duration::from_secs(24 * 60 * 60));
        let task = NewTask { due, ..NewTask::new(format!("later.{topic}").parse().unwrap()) };
        queue_like(&database, &task, TASKS_EACH).await;
    }
    log_statements(&database).await;
    let node = Server::start(&database);
    while !leads(&node).await {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    // Whatever comes with the start is over.
    tokio::time::sleep(Duration::from_secs(3)).await;
    let seconds = scaled(12, 60);
    let (asked, worked) = (postgres.statements(), node.process.cpu_time());
    tokio::time::sleep(Duration::from_secs(seconds as u64)).await;
    let asked = postgres.statements() - asked;
    assert!(asked < seconds, "{asked} statements in {seconds} s");
    if let (Some(before), Some(after), Some(kib)) = (worked, node.process.cpu_time(), node.process.resident_kib()) {
        let (share, mib) = ((after - before).as_secs_f64() / seconds as f64, kib as f64 / 1024.0);
        println!("{asked} statements in {seconds} s, {:.2} % of a core, {mib:.0} MiB", share * 100.0);
        // Of 0.2 % a few seconds have few of the hundredths that the system counts, and a build that was not optimised takes more.
        let most = if cfg!(debug_assertions) { scaled(100, 40) } else { scaled(100, 20) } as f64 / 10_000.0;
        assert!(share < most, "{:.2} % of a core", share * 100.0);
        assert!(mib < MOST_MIB, "{mib:.0} MiB");
    }
    node.stop();
}

/// Has the server log what it is asked from now on.
async fn log_statements(database: &Database) {
    let log = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', current_database()); END $$";
    database.execute(log).await;
}
