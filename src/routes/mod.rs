//! What serves a topic besides handlers.

pub(crate) mod address;
pub(crate) mod courier;
pub(crate) mod pull;
pub(crate) mod signature;
pub(crate) mod webhook;

use punctual_domain::topic::Route;

/// Why nothing happens to the tasks of a route in this build, if nothing does.
pub(crate) fn unserved(route: &Route) -> Option<&'static str> {
    match route {
        Route::Handler | Route::Webhook { .. } | Route::Pull | Route::Event => None,
        Route::Bullmq { .. } => Some("this build hands nothing to BullMQ yet: the tasks of such a topic wait"),
    }
}
