//! What nodes with nothing to do ask of their database.

use std::time::Duration;

use crate::bed::scaled;
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
    let log = "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET log_statement = ''all''', current_database()); END $$";
    database.execute(log).await;
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
