use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::{Context, Error};

/// Looks whether all is well with what a plugin does. An `async fn(Context, DateTime<Utc>)` that ends in a
/// `Result<Option<Trouble>, Error>` is a health check; the instant is the present one, by the database's clock.
///
/// Every node looks once a minute. Whoever operates the service is told of trouble as of the service's own: once an hour at the
/// most, whatever the number of nodes. A look should cost next to nothing while all is well, and has ten seconds.
#[async_trait]
pub trait HealthCheck: Send + Sync {
    /// What is wrong, if anything is.
    ///
    /// # Errors
    /// When that could not be found out; it is logged.
    async fn look(&self, context: Context, now: DateTime<Utc>) -> Result<Option<Trouble>, Error>;
}

#[async_trait]
impl<F, W> HealthCheck for F
where
    F: Fn(Context, DateTime<Utc>) -> W + Send + Sync,
    W: Future<Output = Result<Option<Trouble>, Error>> + Send,
{
    async fn look(&self, context: Context, now: DateTime<Utc>) -> Result<Option<Trouble>, Error> {
        self(context, now).await
    }
}

/// What is wrong, as somebody is told of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// In one line.
    pub subject: String,
    /// What was seen, and where to look.
    pub text: String,
}
