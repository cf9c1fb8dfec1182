//! Redis, as far as asking whether it is there. It only ever holds hints: without it everything still works.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::{Client, RedisResult};

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
        match tokio::time::timeout(CONNECT + ANSWER, redis::cmd("PING").query_async(&mut connection)).await {
            Ok(answer) => answer,
            Err(_) => Err((redis::ErrorKind::Io, "no answer in time").into()),
        }
    }
}
