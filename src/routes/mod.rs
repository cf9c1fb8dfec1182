//! What serves a topic besides handlers.

pub(crate) mod address;
pub(crate) mod pull;

use punctual_domain::topic::Route;

/// Why nothing happens to the tasks of a route in this build, if nothing does.
pub(crate) fn unserved(route: &Route) -> Option<&'static str> {
    match route {
        Route::Handler | Route::Pull | Route::Event => None,
        Route::Webhook { .. } => Some("this build sends no webhooks yet: the tasks of such a topic wait"),
        Route::Bullmq { .. } => Some("this build hands nothing to BullMQ yet: the tasks of such a topic wait"),
    }
}
