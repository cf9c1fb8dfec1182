//! Raising alerts: every node looks for what somebody has to know; the store sees to it that each cause is told by one, once
//! an hour.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, Utc};
use punctual_domain::alert::{Address, Alert, Cause, WINDOW, alerts};
use punctual_domain::store::{Store, StoreError};
use punctual_sdk::{Context, HealthCheck, Trouble};
use tokio_util::task::AbortOnDropHandle;

/// How long a plugin may look.
const LOOK: Duration = Duration::from_secs(10);

/// What a plugin looks after.
#[derive(Clone)]
pub(crate) struct Check {
    pub(crate) plugin: &'static str,
    /// What an alert of it is about.
    pub(crate) cause: &'static str,
    pub(crate) check: Arc<dyn HealthCheck>,
    pub(crate) context: Context,
}

impl Check {
    /// What a plugin finds, if it finds anything; one that fails, panics or hangs keeps nobody else from looking.
    async fn look(&self, now: DateTime<Utc>) -> Option<Alert> {
        let Self { plugin, cause, .. } = *self;
        let (check, context) = (Arc::clone(&self.check), self.context.clone());
        let looking = AbortOnDropHandle::new(tokio::spawn(async move { check.look(context, now).await }));
        let error = match tokio::time::timeout(LOOK, looking).await {
            Ok(Ok(Ok(found))) => {
                return found.map(|Trouble { subject, text }| Alert { cause: Cause::OfPlugin(cause), subject, text });
            }
            Ok(Ok(Err(error))) => error.to_string(),
            Ok(Err(panicked)) => panicked.to_string(),
            Err(_) => format!("it took longer than {} s", LOOK.as_secs()),
        };
        tracing::warn!(plugin, cause, error, "health not checked");
        None
    }
}

/// What the store shows that somebody has to know.
pub(crate) async fn of_store(store: &dyn Store) -> Result<Vec<Alert>, StoreError> {
    Ok(alerts(&store.signs().await?))
}

/// What plugins find that somebody has to know. It takes as long as they take.
pub(crate) async fn of_plugins(checks: &[Check], now: DateTime<Utc>) -> Vec<Alert> {
    let mut alerts = Vec::new();
    for check in checks {
        alerts.extend(check.look(now).await);
    }
    alerts
}

/// Raises what is to be raised; answers whether messages were posted.
pub(crate) async fn raise(store: &dyn Store, addresses: &[Address], alerts: Vec<Alert>) -> Result<bool, StoreError> {
    let mut posted = false;
    for alert in alerts {
        let messages = addresses.iter().map(|address| alert.message(address)).collect::<Result<Vec<_>, _>>();
        let messages = messages.map_err(|error| StoreError::Broken(error.to_string()))?;
        let is_any = !messages.is_empty();
        if store.raise(alert.cause, WINDOW, messages).await? {
            tell(&alert);
            posted |= is_any;
        }
    }
    Ok(posted)
}

fn tell(Alert { cause, subject, text }: &Alert) {
    metrics::counter!("punctual_alerts_total", "cause" => cause.as_str()).increment(1);
    tracing::error!(cause = cause.as_str(), subject, text, "alert");
}

/// Shows every cause from the start.
pub(crate) fn count_from_zero(checks: &[Check]) {
    for cause in Cause::ALL.into_iter().chain(checks.iter().map(|check| Cause::OfPlugin(check.cause))) {
        metrics::counter!("punctual_alerts_total", "cause" => cause.as_str()).increment(0);
    }
}
