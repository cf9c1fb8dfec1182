//! Topics: what serves them, and how fast.

use axum::http::StatusCode;
use punctual_domain::topic::TopicDefinition;
use serde_json::json;

use super::operation::Operation;
use super::tasks::{retry_input, timeout};
use crate::http::problem::Code;
use crate::http::topics::{MAX_CONCURRENCY, MAX_RATE, MAX_RETENTION_DAYS};
use crate::routes::signature::MAX_SECRETS;
use punctual_sdk::Schema;

pub(in crate::http) fn list(operation: Operation) -> Operation {
    operation.paged_by_name(Schema::named("Topic"))
}

pub(in crate::http) fn show(operation: Operation) -> Operation {
    operation.place("name", Schema::topic_pattern()).answers(StatusCode::OK, "The definition", Schema::named("Topic"))
}

pub(in crate::http) fn put(operation: Operation) -> Operation {
    let concurrency = Schema::whole(1..=MAX_CONCURRENCY).or(TopicDefinition::DEFAULT_CONCURRENCY);
    let body = Schema::object([]).takes([
        ("name", Schema::topic_pattern().about("as in the address, or left out")),
        ("route", route_input()),
        ("concurrency", concurrency.about("attempts at once per node; of a pull topic in all")),
        ("ratePerSecond", Schema::positive(MAX_RATE)),
        ("retry", retry_input()),
        ("timeoutSeconds", timeout()),
        ("paused", Schema::flag().or(false)),
        ("retentionDays", Schema::whole(1..=MAX_RETENTION_DAYS).about("how long ended tasks are kept")),
    ]);
    operation
        .place("name", Schema::topic_pattern())
        .body(body, json!({"route": {"type": "pull"}, "concurrency": 10}))
        .answers(StatusCode::OK, "The definition", Schema::named("Topic"))
        .answers(StatusCode::CREATED, "The new definition", Schema::named("Topic"))
        .with_location("definition")
        .leads_to("name", "$response.body#/name", ["getTopic", "deleteTopic", "pauseTopic", "resumeTopic"])
        .refuses([Code::HandlerRegistered])
}

pub(in crate::http) fn delete(operation: Operation) -> Operation {
    operation
        .place("name", Schema::topic_pattern())
        .answers_nothing("It is gone; its tasks follow the next longest match")
        .refuses([Code::HandlerRegistered])
}

pub(in crate::http) fn set_paused(operation: Operation) -> Operation {
    operation.place("name", Schema::topic_pattern()).empty_body().answers(
        StatusCode::OK,
        "The definition",
        Schema::named("Topic"),
    )
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let example = json!({
        "name": "resize", "route": {"type": "pull"}, "concurrency": 10, "ratePerSecond": null, "retry": null,
        "timeoutSeconds": null, "paused": false, "retentionDays": null, "warnings": [],
    });
    let topic = Schema::object([
        ("name", Schema::topic_pattern()),
        ("route", route()),
        ("concurrency", Schema::whole(1..=MAX_CONCURRENCY)),
        ("ratePerSecond", Schema::positive(MAX_RATE).or_null()),
        ("retry", Schema::named("RetryPolicy").or_null()),
        ("timeoutSeconds", timeout().or_null()),
        ("paused", Schema::flag()),
        ("retentionDays", Schema::count().or_null()),
        ("warnings", Schema::list(Schema::text().example("nobody serves it"))),
    ]);
    vec![("Topic", topic.example(example))]
}

/// A route as callers say it.
fn route_input() -> Schema {
    let secret = Schema::text_of(8..=512).matching(r"^[^\x00-\x1f\x7f-\x9f]*$").about("never shown again");
    let name = || Schema::text_of(1..=200).matching(r"^[^:\x00-\x1f\x7f-\x9f]*$");
    let bare = |kind: &str| Schema::object([("type", Schema::word([kind]))]);
    Schema::either([
        Schema::object([("type", Schema::word(["handler", "pull", "event"]))]),
        bare("webhook").needs([
            ("url", Schema::format("uri").example("https://example.com/hook")),
            ("secrets", Schema::texts(secret, 1..=MAX_SECRETS)),
        ]),
        bare("bullmq").needs([("queue", name())]).takes([("prefix", name().or("bull"))]),
    ])
}

/// A route as it is shown, without its secrets.
fn route() -> Schema {
    let bare = |kind: &str| Schema::object([("type", Schema::word([kind]))]);
    Schema::either([
        Schema::object([("type", Schema::word(["handler", "pull", "event"]))]),
        bare("webhook").needs([("url", Schema::format("uri")), ("secrets", Schema::list(Schema::word(["***"])))]),
        bare("bullmq").needs([("queue", Schema::text().example("images")), ("prefix", Schema::text().example("bull"))]),
    ])
}
