//! The dashboard at `/`: pages made here, in the binary, for people who want to see that everything fires.
//!
//! A page is a function that reads and answers HTML; one file per page. It works without JavaScript, and the one script
//! brings it up to date while something happens (`live.rs`): it fetches the same address again and exchanges the regions that are
//! marked `data-live`. What a form changes goes through the API's own route ([`Visitor::act`]): the same checks, the same
//! role, the same entry in the audit log. The table below lists every route with who may call it, as the API's does.

mod ahead;
mod assets;
mod audit;
mod chart;
mod dress;
mod failures;
mod form;
mod health;
mod json;
mod keys;
mod lately;
mod layout;
mod live;
mod login;
mod month;
mod nodes;
mod notice;
mod outbox;
mod overview;
mod parts;
mod schedule;
mod schedule_form;
mod schedule_moves;
mod schedules;
pub(crate) mod session;
mod task;
mod tasks;
mod topics;
mod visitor;

use std::sync::Arc;

use axum::handler::Handler;
use axum::http::Method;

pub(crate) use dress::{dress, or_page};
pub(crate) use overview::Glances;
pub(crate) use visitor::Inside;

use crate::http::Api;
use crate::http::endpoint::{Called, Endpoint, admin, endpoint, open, operate, read};
use crate::http::table;

const GET: Method = Method::GET;
const POST: Method = Method::POST;

/// Every route of the dashboard.
#[rustfmt::skip]
pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        open(GET, "/assets/{name}", assets::show).page(),
        open(GET, login::PATH, login::show).page(),
        open(POST, login::PATH, login::log_in).page(),
        open(POST, "/logout", login::log_out).page(),
        read(GET, "/", overview::show).page(),
        read(GET, "/live", live::follow).page(),
        read(GET, "/failures", failures::show).page(),
        read(GET, "/topics", topics::list).page(),
        acts("/topics/{name}/pause", POST, "/api/v1/topics/{name}/pause", topics::pause),
        acts("/topics/{name}/resume", POST, "/api/v1/topics/{name}/resume", topics::resume),
        read(GET, "/outbox", outbox::list).page(),
        read(GET, "/outbox/{id}", outbox::show).page(),
        read(GET, "/outbox/{id}/html", outbox::show_html).page(),
        acts("/outbox/{id}/retry", POST, "/api/v1/outbox/{id}/retry", outbox::retry),
        read(GET, "/nodes", nodes::show).page(),
        admin(GET, "/audit", audit::list).page(),
        admin(GET, "/keys", keys::list).page(),
        acts("/keys", POST, "/api/v1/keys", keys::create),
        acts("/keys/{id}/revoke", Method::DELETE, "/api/v1/keys/{id}", keys::revoke),

        read(GET, "/schedules", schedules::show).page(),
        read(GET, "/schedules/calendar", month::show).page(),
        operate(GET, "/schedules/new", schedule_form::new).page(),
        acts("/schedules/new", POST, "/api/v1/schedules", schedule_form::create),
        acts("/schedules/preview", POST, "/api/v1/schedules/preview", schedule_form::preview),
        read(GET, "/schedules/{id}", schedule::show).page(),
        operate(GET, "/schedules/{id}/edit", schedule_form::edit).page(),
        acts("/schedules/{id}/edit", Method::PUT, "/api/v1/schedules/{id}", schedule_form::save),
        acts("/schedules/{id}/pause", POST, "/api/v1/schedules/{id}/pause", schedule_moves::pause),
        acts("/schedules/{id}/resume", POST, "/api/v1/schedules/{id}/resume", schedule_moves::resume),
        acts("/schedules/{id}/trigger", POST, "/api/v1/schedules/{id}/trigger", schedule_moves::trigger),
        operate(GET, "/schedules/{id}/backfill", schedule_moves::ask_to_backfill).page(),
        acts("/schedules/{id}/backfill", POST, "/api/v1/schedules/{id}/backfill", schedule_moves::backfill).slow(),
        operate(GET, "/schedules/{id}/delete", schedule_moves::ask_to_delete).page(),
        acts("/schedules/{id}/delete", Method::DELETE, "/api/v1/schedules/{id}", schedule_moves::delete),

        read(GET, "/tasks", tasks::show).page(),
        operate(GET, "/tasks/bulk", tasks::ask).page(),
        acts("/tasks/bulk/cancel", POST, "/api/v1/tasks/cancel", tasks::cancel).slow(),
        acts("/tasks/bulk/retry", POST, "/api/v1/tasks/retry", tasks::retry).slow(),
        read(GET, "/tasks/{id}", task::show).page(),
        acts("/tasks/{id}/retry", POST, "/api/v1/tasks/{id}/retry", task::retry),
        acts("/tasks/{id}/cancel", POST, "/api/v1/tasks/{id}/cancel", task::cancel),
        acts("/tasks/{id}/reschedule", POST, "/api/v1/tasks/{id}/reschedule", task::reschedule),
    ]
}

/// A form that calls a route of the API, for those who may call that.
fn acts<H, T>(path: &'static str, method: Method, route: &'static str, handler: H) -> Endpoint
where
    H: Handler<T, Arc<Api>>,
    T: 'static,
{
    #[expect(clippy::expect_used, reason = "both tables are constants, and every start reads them")]
    let access = table::access(&method, route).expect("a route of the API");
    endpoint(POST, path, access, handler).form(Called { method, route })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::http::endpoint::Access;

    /// The list is that of the rules; the tests of the service call each of its routes with every role.
    #[test]
    fn every_route_is_in_the_list_of_who_may_call_it() {
        let listed: BTreeSet<_> =
            include_str!("../../tests/testdata/dashboard_routes.txt").lines().map(str::to_owned).collect();
        let served: BTreeSet<_> = endpoints()
            .iter()
            .map(|Endpoint { method, path, access, .. }| match access {
                Access::Open => format!("{method} {path} everybody"),
                Access::Role(role) => format!("{method} {path} {}", role.as_str()),
            })
            .collect();
        assert_eq!(served, listed);
    }
}
