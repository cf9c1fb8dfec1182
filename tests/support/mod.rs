//! What the black-box tests share: a fresh database each, the real binary, and a client.

mod contract;
mod database;
mod mail_server;
mod past;
mod process;
mod redis;
mod samples;
mod server;
mod stream;

pub use contract::{Contract, Operation};
pub use database::Database;
pub use mail_server::{MailServer, beside_us, python};
pub use past::Past;
pub use process::{Process, punctual, punctual_of};
pub use redis::Redis;
pub use samples::Samples;
pub use server::{ALL_PLUGINS, Answer, Server};
pub use stream::{Frame, Stream};

/// Makes one test per database out of each function that takes a [`Database`].
///
/// Without `TEST_DATABASE_URL` those on PostgreSQL say that they were skipped; where `CI` is set they fail.
#[macro_export]
macro_rules! on_each_database {
    ($($name:ident),* $(,)?) => {
        mod sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                super::$name($crate::support::Database::sqlite()).await;
            })*
        }

        mod postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(database) = $crate::support::Database::postgres().await {
                    super::$name(database).await;
                }
            })*
        }
    };
}

/// The same, and once more on PostgreSQL behind a pooler: without `TEST_PGBOUNCER_URL` those are skipped in the same way.
#[macro_export]
macro_rules! on_each_database_and_pooler {
    ($($name:ident),* $(,)?) => {
        $crate::on_each_database!($($name),*);

        mod pooled {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $name() {
                if let Some(database) = $crate::support::Database::pooled().await {
                    super::$name(database).await;
                }
            })*
        }
    };
}
