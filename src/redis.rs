//! Redis: whether it is there, and scripts that run in it. It only ever holds hints: without it everything still works.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult, Script};

use crate::config::Secret;

const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_millis(500);

/// A connection that is made when it is first needed, and again whenever it was lost.
#[derive(Clone)]
pub(crate) struct Redis(ConnectionManager);

impl Redis {
    /// Prepares a connection, without making it.
    ///
    /// # Errors
    /// When the URL cannot be understood.
    pub(crate) fn new(url: &Secret) -> RedisResult<Self> {
        let config = ConnectionManagerConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(ANSWER))
            .set_number_of_retries(0);
        ConnectionManager::new_lazy_with_config(Client::open(url.expose())?, config).map(Self)
    }

    /// Asks whether it is there, for at most a second and a half.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn ping(&self) -> RedisResult<()> {
        let mut connection = self.0.clone();
        in_time(redis::cmd("PING").query_async(&mut connection)).await
    }

    /// Runs a script about one key, for at most a second and a half.
    ///
    /// # Errors
    /// When Redis does not answer, or refuses the script.
    pub(crate) async fn run(&self, script: &'static str, key: &str, arguments: &[&str]) -> RedisResult<i64> {
        let mut connection = self.0.clone();
        let script = Script::new(script);
        let mut call = script.key(key);
        for argument in arguments {
            call.arg(*argument);
        }
        in_time(call.invoke_async(&mut connection)).await
    }
}

async fn in_time<T>(asking: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match tokio::time::timeout(CONNECT + ANSWER, asking).await {
        Ok(answer) => answer,
        Err(_) => Err((redis::ErrorKind::Io, "no answer in time").into()),
    }
}
