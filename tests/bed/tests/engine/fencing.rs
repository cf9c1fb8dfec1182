//! A node that its database does not answer any more stops what it runs before its leases end.

use serde_json::json;
use sqlx::{Connection, PgConnection, SqliteConnection};

use crate::bed::{make_tasks, node, outcomes, until_running};
use crate::on_each_database;
use crate::support::Database;

on_each_database!(an_attempt_is_told_to_stop_before_its_lease_ends_though_nobody_answers);

async fn an_attempt_is_told_to_stop_before_its_lease_ends_though_nobody_answers(database: Database) {
    let mut server = node(&database, &[]);
    let ids = make_tasks(&server, "bed.sleep", json!({"ms": 600_000, "againMs": 1}), 1).await;
    until_running(&database, 1).await;

    let silence = Silence::begin(&database).await;
    // The attempt may say so before the node does.
    server.process.wait_for_log(&format!("told to stop: {}", ids[0]));
    let why = "attempt stopped before its lease ends";
    if server.process.log().iter().all(|line| !line.contains(why)) {
        server.process.wait_for_log(why);
    }
    assert!(server.process.log().iter().all(|line| !line.contains("lease lost")), "nobody answered");
    silence.end().await;

    let task = server.ended_task(&ids[0]).await;
    assert_eq!((&task["status"], &task["result"]), (&json!("completed"), &json!(2)), "{task}");
    assert_eq!(outcomes(&task), ["lost", "completed"], "{task}");
    server.stop();
}

/// Nobody else can write to the database.
enum Silence {
    Postgres(PgConnection),
    Sqlite(SqliteConnection),
}

impl Silence {
    async fn begin(database: &Database) -> Self {
        if database.url.starts_with("sqlite:") {
            let mut connection = SqliteConnection::connect(&database.url).await.unwrap();
            sqlx::raw_sql("BEGIN IMMEDIATE").execute(&mut connection).await.unwrap();
            return Self::Sqlite(connection);
        }
        let mut connection = PgConnection::connect(&database.url).await.unwrap();
        let lock = "BEGIN; LOCK TABLE punctual_tasks IN ACCESS EXCLUSIVE MODE";
        sqlx::raw_sql(lock).execute(&mut connection).await.unwrap();
        Self::Postgres(connection)
    }

    async fn end(self) {
        match self {
            Self::Postgres(connection) => connection.close().await.unwrap(),
            Self::Sqlite(connection) => connection.close().await.unwrap(),
        }
    }
}
