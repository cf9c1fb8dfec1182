//! A database of a test's own.

use std::str::FromStr;

use sqlx::postgres::{PgConnectOptions, PgConnection};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, Executor, SqliteConnection};
use tempfile::TempDir;

/// A fresh database, gone when it is dropped; and a folder to work in.
pub struct Database {
    pub url: String,
    pub folder: TempDir,
    postgres: Option<(PgConnectOptions, String)>,
}

impl Database {
    /// A file in a folder of its own.
    pub fn sqlite() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite://{}", folder.path().join("punctual.db").display());
        Self { url, folder, postgres: None }
    }

    /// A new database on the server at `TEST_DATABASE_URL`, or none if that is not set.
    pub async fn postgres() -> Option<Self> {
        let Ok(url) = std::env::var("TEST_DATABASE_URL") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_DATABASE_URL is not set, and CI skips nothing");
            eprintln!("skipped: TEST_DATABASE_URL is not set");
            return None;
        };
        Some(Self::on(&url).await)
    }

    /// The same behind the pooler at `TEST_PGBOUNCER_URL`, or none if either is not set.
    pub async fn pooled() -> Option<Self> {
        let Ok(pooler) = std::env::var("TEST_PGBOUNCER_URL") else {
            assert!(std::env::var_os("CI").is_none(), "TEST_PGBOUNCER_URL is not set, and CI skips nothing");
            eprintln!("skipped: TEST_PGBOUNCER_URL is not set");
            return None;
        };
        let mut database = Self::postgres().await?;
        let (_, name) = database.postgres.as_ref()?;
        database.url = PgConnectOptions::from_str(&pooler).unwrap().database(name).to_url_lossy().to_string();
        Some(database)
    }

    /// A new database on a server of PostgreSQL.
    pub async fn on(server: &str) -> Self {
        let options = PgConnectOptions::from_str(server).unwrap();
        let name = format!("punctual_service_{}", uuid::Uuid::new_v4().simple());
        execute(&options, format!("CREATE DATABASE {name}")).await;
        let url = options.clone().database(&name).to_url_lossy().to_string();
        Self { url, folder: tempfile::tempdir().unwrap(), postgres: Some((options, name)) }
    }

    /// Runs a statement behind the service's back.
    pub async fn execute(&self, statement: impl Into<String>) {
        let statement = statement.into();
        match &self.postgres {
            Some((server, name)) => execute(&server.clone().database(name), statement).await,
            None => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                connection.execute(AssertSqlSafe(statement)).await.unwrap();
                connection.close().await.unwrap();
            }
        }
    }

    /// The one number that a statement answers, asked behind the service's back.
    pub async fn number(&self, statement: &str) -> i64 {
        let statement = AssertSqlSafe(statement.to_owned());
        match &self.postgres {
            Some((server, name)) => {
                let mut connection = PgConnection::connect_with(&server.clone().database(name)).await.unwrap();
                let number = sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                number
            }
            None => {
                let mut connection = SqliteConnection::connect(&self.url).await.unwrap();
                let number = sqlx::query_scalar(statement).fetch_one(&mut connection).await.unwrap();
                connection.close().await.unwrap();
                number
            }
        }
    }

    /// The server's host and port, and the URL as it is through another port of this machine.
    pub fn through_port(&self, port: u16) -> ((String, u16), String) {
        let (server, name) = self.postgres.as_ref().expect("PostgreSQL");
        let there = (server.get_host().to_owned(), server.get_port());
        let url = server.clone().database(name).host("127.0.0.1").port(port).to_url_lossy().to_string();
        (there, url)
    }
}

impl Drop for Database {
    fn drop(&mut self) {
        let Some((server, name)) = self.postgres.take() else { return };
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(execute(&server, format!("DROP DATABASE IF EXISTS {name} WITH (FORCE)")));
        });
        assert!(dropping.join().is_ok() || std::thread::panicking(), "the test's database was not dropped");
    }
}

async fn execute(server: &PgConnectOptions, statement: String) {
    let mut connection = PgConnection::connect_with(server).await.unwrap();
    connection.execute(AssertSqlSafe(statement)).await.unwrap();
    connection.close().await.unwrap();
}
