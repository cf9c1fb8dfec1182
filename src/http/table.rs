//! Every route of the API, on one page: who may call it, what answers, what it is called, and what says more about it.

use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::LazyLock;

use axum::http::Method;

use super::endpoint::{Access, Endpoint, admin, open, operate, read, submit};
use super::openapi::{self, self as told};
use super::{
    audit, batch, bulk, calendars, claims, events, executions, health, inspection, keys, metrics, moves, nodes, outbox,
    outlook, schedule_moves, schedules, settle, tasks, templates, topics, work,
};

const GET: Method = Method::GET;
const POST: Method = Method::POST;
const PUT: Method = Method::PUT;
const PATCH: Method = Method::PATCH;
const DELETE: Method = Method::DELETE;

/// All routes. The most special paths need not come first.
#[rustfmt::skip]
pub(crate) fn endpoints() -> Vec<Endpoint> {
    vec![
        open(GET, "/livez", health::live)
            .named("live", "Whether the process answers", told::service::live),
        open(GET, "/readyz", health::ready)
            .named("ready", "Whether work can be done here", told::service::ready),
        read(GET, "/metrics", metrics::show)
            .named("metrics", "What was counted, for Prometheus", told::service::metrics),
        read(GET, openapi::PATH, openapi::show)
            .named("describe", "This document: every route, what it takes and what it answers", told::service::describe),
        read(GET, events::PATH, events::follow)
            .named("followEvents", "Sends what happens, as it happens", told::service::events),

        read(GET, tasks::PATH, tasks::list)
            .named("listTasks", "Lists tasks, newest first", told::tasks::list),
        submit(POST, tasks::PATH, tasks::create)
            .named("createTask", "Makes a task", told::tasks::create),
        read(GET, "/api/v1/tasks/{id}", tasks::show)
            .named("getTask", "Shows a task with its attempts", told::tasks::show),
        submit(POST, batch::PATH, batch::create).slow()
            .named("createTasks", "Makes many tasks, all or none", told::tasks::create_many),
        operate(POST, "/api/v1/tasks/{id}/cancel", moves::cancel)
            .named("cancelTask", "Cancels a task", told::tasks::cancel),
        operate(POST, "/api/v1/tasks/{id}/reschedule", moves::reschedule)
            .named("rescheduleTask", "Cancels a task and makes another in its place", told::tasks::reschedule),
        operate(POST, "/api/v1/tasks/{id}/retry", moves::retry)
            .named("retryTask", "Makes a failed task anew", told::tasks::retry),
        operate(POST, bulk::CANCEL_PATH, bulk::cancel).slow()
            .named("cancelTasks", "Cancels every task that a filter finds", told::tasks::bulk),
        operate(POST, bulk::RETRY_PATH, bulk::retry).slow()
            .named("retryTasks", "Makes every failed task anew that a filter finds", told::tasks::bulk),

        read(GET, schedules::PATH, schedules::list)
            .named("listSchedules", "Lists schedules, newest first", told::schedules::list),
        operate(POST, schedules::PATH, schedules::create)
            .named("createSchedule", "Makes a schedule", told::schedules::create),
        read(POST, outlook::PREVIEW_PATH, outlook::preview)
            .named("previewSchedule", "Shows when a schedule would fire, and keeps nothing", told::schedules::preview),
        read(GET, "/api/v1/schedules/{id}", schedules::show)
            .named("getSchedule", "Shows a schedule", told::schedules::show),
        operate(PUT, "/api/v1/schedules/{id}", schedules::replace)
            .named("replaceSchedule", "Replaces a schedule: what is left out returns to its default", told::schedules::replace),
        operate(PATCH, "/api/v1/schedules/{id}", schedules::patch)
            .named("patchSchedule", "Changes some fields of a schedule", told::schedules::patch),
        operate(DELETE, "/api/v1/schedules/{id}", schedules::delete).slow()
            .named("deleteSchedule", "Deletes a schedule and cancels its pending tasks", told::schedules::delete),
        operate(POST, "/api/v1/schedules/{id}/pause", schedule_moves::pause)
            .named("pauseSchedule", "Pauses a schedule, for a while or until it is resumed", told::schedules::pause),
        operate(POST, "/api/v1/schedules/{id}/resume", schedule_moves::resume)
            .named("resumeSchedule", "Resumes a schedule", told::schedules::resume),
        operate(POST, "/api/v1/schedules/{id}/trigger", schedule_moves::trigger)
            .named("triggerSchedule", "Makes a task of a schedule now", told::schedules::trigger),
        operate(POST, "/api/v1/schedules/{id}/backfill", schedule_moves::backfill).slow()
            .named("backfillSchedule", "Makes the tasks of past instants that have not fired", told::schedules::backfill),
        read(GET, "/api/v1/schedules/{id}/executions", executions::list)
            .named("listExecutions", "Lists what became of a schedule's instants, newest first; of a deleted one too, until retention removes them", told::schedules::executions),
        read(GET, "/api/v1/schedules/{id}/next", outlook::next)
            .named("nextFires", "Shows when a schedule fires next", told::schedules::next),

        read(GET, calendars::PATH, calendars::list)
            .named("listCalendars", "Lists calendars, by name", told::calendars::list),
        operate(POST, calendars::PATH, calendars::create)
            .named("createCalendar", "Makes a calendar", told::calendars::create),
        read(GET, "/api/v1/calendars/{name}", calendars::show)
            .named("getCalendar", "Shows a calendar", told::calendars::show),
        operate(PUT, "/api/v1/calendars/{name}", calendars::replace)
            .named("putCalendar", "Makes or replaces a calendar", told::calendars::put),
        operate(DELETE, "/api/v1/calendars/{name}", calendars::delete)
            .named("deleteCalendar", "Deletes a calendar that no schedule names", told::calendars::delete),

        read(GET, "/api/v1/prove", inspection::prove).slow()
            .named("prove", "Compares what should have fired with what did", told::inspection::prove),
        read(GET, "/api/v1/simulate", inspection::simulate).slow()
            .named("simulate", "Tells what all schedules would do in a stretch of time", told::inspection::simulate),
        read(GET, "/api/v1/why/{id}", inspection::why)
            .named("why", "Says why a task, an execution or a schedule has not run", told::inspection::why),
        read(GET, "/api/v1/tz-diff", inspection::tz_diff).slow()
            .named("diffZones", "Lists the fires that newer zone data would move", told::inspection::tz_diff),

        submit(POST, claims::PATH, claims::claim)
            .named("claimTasks", "Claims due tasks for a worker, or waits for them", told::workers::claim),
        submit(POST, "/api/v1/tasks/{id}/heartbeat", settle::heartbeat)
            .named("extendLease", "Extends the lease of a claimed task", told::workers::heartbeat),
        submit(POST, "/api/v1/tasks/{id}/complete", settle::complete)
            .named("completeTask", "Settles a claimed task as completed", told::workers::complete),
        submit(POST, "/api/v1/tasks/{id}/fail", settle::fail)
            .named("failTask", "Settles a claimed task as failed, to be retried, or snoozed", told::workers::fail),

        read(GET, topics::PATH, topics::list)
            .named("listTopics", "Lists the definitions of topics by name", told::topics::list),
        read(GET, "/api/v1/topics/{name}", topics::show)
            .named("getTopic", "Shows the definition of a topic", told::topics::show),
        operate(PUT, "/api/v1/topics/{name}", topics::put)
            .named("putTopic", "Writes the definition of a topic", told::topics::put),
        operate(DELETE, "/api/v1/topics/{name}", topics::delete)
            .named("deleteTopic", "Deletes the definition of a topic", told::topics::delete),
        operate(POST, "/api/v1/topics/{name}/pause", topics::pause)
            .named("pauseTopic", "Lets the tasks of a topic wait", told::topics::set_paused),
        operate(POST, "/api/v1/topics/{name}/resume", topics::resume)
            .named("resumeTopic", "Lets the tasks of a topic run again", told::topics::set_paused),

        operate(POST, "/api/v1/pause", work::pause)
            .named("pause", "Stops this node's work", told::service::work),
        operate(POST, "/api/v1/resume", work::resume)
            .named("resume", "Lets this node work", told::service::work),
        read(GET, "/api/v1/nodes", nodes::list)
            .named("listNodes", "Lists the nodes that share the database", told::service::nodes),

        read(GET, outbox::PATH, outbox::list)
            .named("listMessages", "Lists messages on their way out, newest first", told::outbox::list),
        read(GET, "/api/v1/outbox/{id}", outbox::show)
            .named("getMessage", "Shows a message", told::outbox::show),
        operate(POST, "/api/v1/outbox/{id}/retry", outbox::retry)
            .named("retryMessage", "Tries a failed message again", told::outbox::retry),
        read(GET, templates::PATH, templates::list)
            .named("listTemplates", "Lists the messages that plugins send, filled with their samples", told::templates::list),
        read(GET, "/api/v1/templates/{plugin}/{slug}", templates::show)
            .named("getTemplate", "Shows a message that a plugin sends, filled with its sample", told::templates::show),

        admin(GET, keys::PATH, keys::list)
            .named("listKeys", "Lists API keys", told::keys::list),
        admin(POST, keys::PATH, keys::create)
            .named("createKey", "Makes an API key, which is shown once", told::keys::create),
        admin(DELETE, "/api/v1/keys/{id}", keys::revoke)
            .named("revokeKey", "Revokes an API key", told::keys::revoke),
        admin(GET, audit::PATH, audit::list)
            .named("listAudit", "Lists who changed what, newest first", told::keys::audit),
    ]
}

/// Who may call a route of the table, if there is one.
pub(crate) fn access(method: &Method, path: &str) -> Option<Access> {
    static ACCESS: LazyLock<HashMap<(Method, Cow<'static, str>), Access>> = LazyLock::new(|| {
        endpoints().into_iter().map(|endpoint| ((endpoint.method, endpoint.path), endpoint.access)).collect()
    });
    ACCESS.iter().find(|((known, route), _)| known == method && *route == path).map(|(_, access)| *access)
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_route_has_a_name_of_its_own() {
        let (mut ids, mut routes) = (HashSet::new(), HashSet::new());
        for Endpoint { method, path, id, summary, .. } in endpoints() {
            assert!(ids.insert(id), "{id} stands twice");
            assert!(routes.insert((method, path.clone())), "{path} stands twice");
            let is_name = id.starts_with(char::is_lowercase) && id.chars().all(char::is_alphanumeric);
            assert!(is_name && summary.starts_with(char::is_uppercase), "{id}: {summary}");
        }
    }
}
