//! Pull workers: claim, extend, settle.

use axum::http::StatusCode;
use punctual_domain::retry::MAX_DELAY_MS;
use serde_json::json;

use super::operation::Operation;
use super::tasks::{example_with, task};
use crate::http::claims::MOST_TOPICS;
use crate::http::problem::Code;
use punctual_sdk::Schema;

pub(in crate::http) fn claim(operation: Operation) -> Operation {
    let topics =
        Schema::texts(Schema::topic_pattern(), 1..=MOST_TOPICS).about("exact names, or prefixes such as `mail.*`");
    let body = Schema::object([("topics", topics)]).takes([
        ("max", Schema::whole(1..=1000).or(1).about("how many tasks at the most")),
        ("waitMs", Schema::whole(0..=30_000).or(0).about("how long to wait while there is none")),
        ("leaseSeconds", Schema::whole(1..=3600).or(30).about("how long they are the worker's alone, unless extended")),
    ]);
    let example = example_with(json!({
        "status": "running", "attempt": 1, "startedAt": "2036-12-01T21:37:00.012Z", "epoch": 1,
        "leaseExpiresAt": "2036-12-01T21:37:30.012Z",
    }));
    let claimed = task().needs([("epoch", epoch()), ("leaseExpiresAt", Schema::instant())]).example(example);
    operation
        .body(body, json!({"topics": ["resize"], "max": 10}))
        .answers(
            StatusCode::OK,
            "Tasks to work on; none is an answer too",
            Schema::object([("tasks", Schema::list(claimed))]),
        )
        .leads_to("id", "$response.body#/tasks/0/id", ["extendLease", "completeTask", "failTask"])
}

pub(in crate::http) fn heartbeat(operation: Operation) -> Operation {
    operation
        .body(Schema::object([("epoch", epoch())]), json!({"epoch": 1}))
        .answers(StatusCode::OK, "Until when", Schema::object([("leaseExpiresAt", Schema::instant())]))
        .refuses([Code::LeaseLost])
}

pub(in crate::http) fn complete(operation: Operation) -> Operation {
    let result = Schema::any().about("any JSON value of at most 64 KiB, 128 levels deep");
    operation
        .body(
            Schema::object([("epoch", epoch())]).takes([("result", result)]),
            json!({"epoch": 1, "result": {"ok": true}}),
        )
        .answers(StatusCode::OK, "The task", Schema::named("Task"))
        .refuses([Code::LeaseLost])
}

pub(in crate::http) fn fail(operation: Operation) -> Operation {
    let wait = || Schema::whole(0..=MAX_DELAY_MS as i64);
    let nothing = json!({"type": "null"});
    let not_final = json!({"enum": [false, null]});
    let body = Schema::object([("epoch", epoch())])
        .takes([
            ("error", Schema::text().about("what went wrong, in at most 16 KiB")),
            ("retryAfterMs", wait().about("try again then")),
            ("snoozeMs", wait().about("try again then, without using up an attempt")),
            ("final", Schema::flag().or(false).about("do not try again")),
        ])
        .one_of([
            json!({
                "properties": {"snoozeMs": {"type": "integer"}, "retryAfterMs": nothing, "final": not_final},
                "required": ["snoozeMs"],
            }),
            json!({"properties": {"error": {"type": "string"}, "snoozeMs": nothing, "retryAfterMs": nothing}, "required": ["error"]}),
            json!({"properties": {"error": {"type": "string"}, "snoozeMs": nothing, "final": not_final}, "required": ["error"]}),
        ]);
    operation
        .body(body, json!({"epoch": 1, "error": "the disk is full", "retryAfterMs": 60_000}))
        .answers(StatusCode::OK, "The task", Schema::named("Task"))
        .refuses([Code::LeaseLost])
}

fn epoch() -> Schema {
    Schema::whole(1..=i64::MAX).about("the number of the claim")
}
