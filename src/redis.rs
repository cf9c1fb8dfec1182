//! Redis: whether it is there, and what is asked of it. It only ever holds hints: without it everything still works, and
//! nobody waits for it longer than a moment.

use std::time::Duration;

use punctual_domain::store::StoreError;
use redis::aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection, PubSubStream};
use redis::{
    AsyncConnectionConfig, Client, Cmd, ErrorKind, FromRedisValue, Pipeline, RedisResult, Script, ServerErrorKind,
};

use crate::config::Secret;

const CONNECT: Duration = Duration::from_secs(1);
const ANSWER: Duration = Duration::from_millis(500);
/// The longest that anybody waits for an answer.
pub(crate) const PATIENCE: Duration = Duration::from_millis(1_500);

/// A connection that is made when it is first needed, and again whenever it was lost.
#[derive(Clone)]
pub(crate) struct Redis {
    shared: ConnectionManager,
    client: Client,
}

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
        let client = Client::open(url.expose())?;
        Ok(Self { shared: ConnectionManager::new_lazy_with_config(client.clone(), config)?, client })
    }

    /// Asks whether it is there, for at most a second and a half.
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) async fn ping(&self) -> RedisResult<()> {
        self.ask(&redis::cmd("PING")).await
    }

    /// Carries out one command, for at most a second and a half.
    ///
    /// # Errors
    /// When Redis does not answer, or refuses the command.
    pub(crate) async fn ask<T: FromRedisValue>(&self, command: &Cmd) -> RedisResult<T> {
        let mut connection = self.shared.clone();
        in_time(command.query_async(&mut connection)).await
    }

    /// Carries out several commands together, for at most a second and a half.
    ///
    /// # Errors
    /// When Redis does not answer, or refuses one of them.
    pub(crate) async fn ask_all<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<T> {
        let mut connection = self.shared.clone();
        in_time(commands.query_async(&mut connection)).await
    }

    /// Runs a script, for at most a second and a half.
    ///
    /// # Errors
    /// When Redis does not answer, or refuses the script.
    pub(crate) async fn run(&self, script: &'static str, keys: &[&str], arguments: &[&str]) -> RedisResult<i64> {
        let mut connection = self.shared.clone();
        let script = Script::new(script);
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(*key);
        }
        for argument in arguments {
            call.arg(*argument);
        }
        in_time(call.invoke_async(&mut connection)).await
    }

    /// What is published in a channel from now on.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn subscribe(&self, channel: &str) -> RedisResult<PubSubStream> {
        let subscribing = async {
            let mut messages = self.client.get_async_pubsub().await?;
            messages.subscribe(channel).await?;
            Ok(messages.into_on_message())
        };
        in_time(subscribing).await
    }

    /// A connection for one who waits in Redis, for at most so long at a time.
    ///
    /// # Errors
    /// When Redis does not answer.
    pub(crate) async fn waiting(&self, longest: Duration) -> RedisResult<MultiplexedConnection> {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(CONNECT))
            .set_response_timeout(Some(longest + CONNECT));
        in_time(self.client.get_multiplexed_async_connection_with_config(&config)).await
    }
}

/// Why something could not be done now that takes both Redis and the store.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NotNow {
    #[error("Redis {does}: {why}", does = if is_refusal(.0) { "refuses" } else { "does not answer" }, why = .0)]
    Redis(#[from] redis::RedisError),
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl NotNow {
    /// Whether Redis did answer, and said no: what was asked for is refused, whoever else is served.
    pub(crate) fn is_refusal(&self) -> bool {
        matches!(self, Self::Redis(error) if is_refusal(error))
    }
}

/// Whether Redis answered, and said no, not just that it cannot answer yet.
pub(crate) fn is_refusal(error: &redis::RedisError) -> bool {
    use ServerErrorKind::{BusyLoading, ClusterDown, MasterDown, TryAgain};
    match error.kind() {
        ErrorKind::Server(BusyLoading | ClusterDown | MasterDown | TryAgain) => false,
        // Codes that the crate does not know, such as WRONGTYPE; of several commands together it keeps no code.
        ErrorKind::Server(_) | ErrorKind::Extension => true,
        _ => false,
    }
}

async fn in_time<T>(asking: impl Future<Output = RedisResult<T>>) -> RedisResult<T> {
    match tokio::time::timeout(PATIENCE, asking).await {
        Ok(answer) => answer,
        Err(_) => Err((ErrorKind::Io, "no answer in time").into()),
    }
}
