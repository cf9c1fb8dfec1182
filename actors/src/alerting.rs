//! Raising alerts: every node looks for what somebody has to know; the store sees to it that each cause is told by one, once
//! an hour.

use punctual_domain::alert::{Address, Alert, Cause, WINDOW, alerts};
use punctual_domain::store::{Store, StoreError};

/// Looks, and raises what is to be raised; answers whether messages were posted.
pub(crate) async fn look(store: &dyn Store, addresses: &[Address]) -> Result<bool, StoreError> {
    let mut posted = false;
    for alert in alerts(&store.signs().await?) {
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
pub(crate) fn count_from_zero() {
    for cause in Cause::ALL {
        metrics::counter!("punctual_alerts_total", "cause" => cause.as_str()).increment(0);
    }
}
