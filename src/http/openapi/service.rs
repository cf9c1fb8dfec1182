//! The service itself: whether it lives, what it does, who else there is.

use axum::http::StatusCode;
use serde_json::json;

use super::operation::Operation;
use crate::http::events::NAMES;
use punctual_sdk::Schema;

pub(in crate::http) fn live(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "It lives", Schema::object([("status", Schema::word(["alive"]))]))
}

pub(in crate::http) fn ready(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "It works, or is paused", Schema::named("Readiness")).answers(
        StatusCode::SERVICE_UNAVAILABLE,
        "It cannot work, or stops",
        Schema::named("Readiness"),
    )
}

pub(in crate::http) fn metrics(operation: Operation) -> Operation {
    operation.answers_as(
        StatusCode::OK,
        "Samples, as Prometheus reads them",
        "text/plain",
        Schema::text().example("# TYPE punctual_leader gauge\npunctual_leader 1\n"),
    )
}

pub(in crate::http) fn describe(operation: Operation) -> Operation {
    let document = Schema::by_name(Schema::any()).example(json!({"openapi": "3.1.0", "paths": {}}));
    operation.answers(StatusCode::OK, "This document", document)
}

pub(in crate::http) fn events(operation: Operation) -> Operation {
    let topics = Schema::list(Schema::topic_pattern()).about("separated by commas; prefixes too, such as `mail.*`");
    let about =
        "Server-sent events without end: `event` is the name, `id` the id to resume after, `data` one JSON object";
    let last = Schema::format("event-id")
        .about("the event to go on after")
        .example("2111873820000000-019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d11-end");
    let stream = Schema::text().example(
        "event: schedule.arrived\nid: 2111873820000000-019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d11-a1\ndata: {\"topic\":\"mail.send\"}\n\n",
    );
    operation
        .query("topic", topics)
        .query("type", Schema::list(Schema::word(NAMES)).about("separated by commas"))
        .header("Last-Event-ID", last)
        .answers_as(StatusCode::OK, about, "text/event-stream", stream)
}

pub(in crate::http) fn work(operation: Operation) -> Operation {
    operation.empty_body().answers(
        StatusCode::OK,
        "Whether this node is paused now",
        Schema::object([("paused", Schema::flag())]),
    )
}

pub(in crate::http) fn nodes(operation: Operation) -> Operation {
    operation.paged(Schema::named("Node"))
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let word = || Schema::word(["ok", "unavailable"]);
    let status = Schema::word(["ready", "degraded", "paused", "draining", "unavailable"]);
    let readiness = Schema::object([("status", status)])
        .may_have([
            ("database", word()),
            ("schema", Schema::count()),
            ("redis", word().or_null()),
            ("tzVersion", Schema::text().example("2026e")),
        ])
        .about("where keys are needed, all but `status` needs one")
        .example(json!({"status": "ready", "database": "ok", "schema": 1, "redis": null, "tzVersion": "2026e"}));
    let node = Schema::object([
        ("id", Schema::id().about("made anew at every start")),
        ("version", Schema::text().example(env!("CARGO_PKG_VERSION"))),
        ("tzVersion", Schema::text().example("2026e")),
        ("startedAt", Schema::instant()),
        ("seenAt", Schema::instant()),
        ("paused", Schema::flag()),
        (
            "silent",
            Schema::flag().about("whether it missed three of its heartbeats: it died, or cannot reach the database"),
        ),
        ("leader", Schema::flag().about("whether it decides what is due")),
        ("plugins", Schema::list(Schema::text().example("signup"))),
        ("listen", Schema::text().or_null()),
    ]);
    vec![("Readiness", readiness), ("Node", node)]
}
