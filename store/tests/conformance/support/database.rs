//! Where a test's data is, and ways to it past the store.

use sqlx::postgres::PgConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, PgConnection, SqliteConnection};
use tempfile::TempDir;

/// Where a test's data is.
#[derive(Clone)]
pub(crate) enum Database {
    /// A file.
    Sqlite {
        /// Its URL.
        url: String,
    },
    /// A schema of a server.
    Postgres {
        /// The URL of the server.
        server: String,
        /// The schema's name.
        schema: String,
    },
    /// A database of a server, behind a pooler: that knows no schemas.
    Pooled {
        /// The URL of the server.
        server: Box<PgConnectOptions>,
        /// The URL of the pooler.
        pooler: Box<PgConnectOptions>,
        /// The database's name.
        name: String,
    },
}

impl Database {
    /// A file in `folder`, not made yet.
    pub(crate) fn sqlite(folder: &TempDir, file: &str) -> Self {
        Self::Sqlite { url: format!("sqlite://{}", folder.path().join(file).display()) }
    }

    /// The URL that leads `connect` to it.
    pub(crate) fn url(&self) -> String {
        match self {
            Self::Sqlite { url } => url.clone(),
            Self::Postgres { server, schema } => {
                let separator = if server.contains('?') { '&' } else { '?' };
                format!("{server}{separator}options=-csearch_path%3D{schema}")
            }
            Self::Pooled { pooler, name, .. } => pooler.clone().database(name).to_url_lossy().to_string(),
        }
    }

    /// An empty database beside this one, removed together with it.
    pub(crate) async fn empty_sibling(&self) -> Self {
        let sibling = match self {
            Self::Sqlite { url } => Self::Sqlite { url: format!("{url}.sibling") },
            Self::Postgres { server, schema } => {
                Self::Postgres { server: server.clone(), schema: format!("{schema}_b") }
            }
            Self::Pooled { .. } => panic!("a sibling would have to be a database of its own"),
        };
        sibling.create().await;
        sibling
    }

    /// Runs statements, past the store.
    pub(crate) async fn execute(&self, sql: &'static str) {
        match self {
            Self::Sqlite { .. } => {
                sqlx::raw_sql(sql).execute(&mut self.sqlite_connection().await).await.unwrap();
            }
            Self::Postgres { .. } | Self::Pooled { .. } => {
                sqlx::raw_sql(sql).execute(&mut self.postgres_connection().await).await.unwrap();
            }
        }
    }

    /// How many rows a table has, looked up past the store.
    pub(crate) async fn count(&self, table: &str) -> i64 {
        let sql = format!("SELECT count(*) FROM {table}");
        match self {
            Self::Sqlite { .. } => {
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut self.sqlite_connection().await).await.unwrap()
            }
            Self::Postgres { .. } | Self::Pooled { .. } => {
                sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&mut self.postgres_connection().await).await.unwrap()
            }
        }
    }

    pub(super) async fn create(&self) {
        match self {
            // A file without bytes is an empty database.
            Self::Sqlite { url } => std::fs::write(url.trim_start_matches("sqlite://"), "").unwrap(),
            Self::Postgres { schema, .. } => {
                let sql = format!("CREATE SCHEMA {schema}");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.postgres_connection().await).await.unwrap();
            }
            Self::Pooled { server, name, .. } => administer(server, format!("CREATE DATABASE {name}")).await,
        }
    }

    pub(super) async fn remove(&self) {
        match self {
            Self::Sqlite { .. } => {}
            Self::Postgres { schema, .. } => {
                let sql =
                    format!("SET client_min_messages = error; DROP SCHEMA IF EXISTS {schema}, {schema}_b CASCADE");
                sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut self.postgres_connection().await).await.unwrap();
            }
            Self::Pooled { server, name, .. } => administer(server, format!("DROP DATABASE {name} WITH (FORCE)")).await,
        }
    }

    pub(super) async fn sqlite_connection(&self) -> SqliteConnection {
        SqliteConnection::connect(&self.url()).await.expect("the file")
    }

    pub(super) async fn postgres_connection(&self) -> PgConnection {
        let connected = match self {
            // The server itself.
            Self::Pooled { server, name, .. } => PgConnection::connect_with(&server.clone().database(name)).await,
            Self::Postgres { .. } | Self::Sqlite { .. } => PgConnection::connect(&self.url()).await,
        };
        connected.expect("the server at TEST_DATABASE_URL")
    }
}

async fn administer(server: &PgConnectOptions, sql: String) {
    let mut connection = PgConnection::connect_with(server).await.expect("the server at TEST_DATABASE_URL");
    sqlx::raw_sql(AssertSqlSafe(sql)).execute(&mut connection).await.unwrap();
}
