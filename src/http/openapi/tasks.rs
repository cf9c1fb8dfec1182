//! Tasks: made, looked at, moved, one by one or many at once.

use axum::http::StatusCode;
use punctual_domain::retry::{MAX_ATTEMPTS, MAX_DELAY_MS};
use punctual_domain::task::{AttemptOutcome, DEFAULT_TIMEOUT_SECONDS, MAX_TIMEOUT_SECONDS, TaskStatus};
use serde_json::{Value, json};

use super::operation::Operation;
use crate::http::batch::MAX_TASKS;
use crate::http::new_task::MAX_TASK_DELAY_MS;
use crate::http::problem::Code;
use punctual_sdk::Schema;

/// What can be wrong with a new task, beside what can be wrong with anything.
const WRONG: [Code; 3] = [Code::RunAtInPast, Code::InvalidTimezone, Code::ClientRequestIdInUse];

pub(in crate::http) fn create(operation: Operation) -> Operation {
    let example = json!({
        "topic": "signup.reminder.early", "runAt": "2036-12-01T15:37:00-06:00", "timezone": "America/Mexico_City",
        "payload": {"user": 17}, "metadata": {"ownerId": "me"},
        "retry": {"attempts": 3, "backoff": {"type": "exponential", "delay": 1000}},
    });
    operation
        .body(Schema::named("NewTask"), example)
        .answers(StatusCode::CREATED, "The new task", Schema::named("Task"))
        .answers(StatusCode::OK, "The living task with the same `dedupeKey`", Schema::named("DeduplicatedTask"))
        .with_location("task")
        .leads_to("id", "$response.body#/id", ["getTask", "cancelTask", "rescheduleTask", "retryTask", "why"])
        .refuses(WRONG)
}

pub(in crate::http) fn create_many(operation: Operation) -> Operation {
    let tasks = Schema::list_of(Schema::named("NewTask"), 1..=MAX_TASKS);
    let ids = Schema::list(Schema::id()).about("in the order of the tasks");
    operation
        .body(
            Schema::object([("tasks", tasks)]),
            json!({"tasks": [{"topic": "echo"}, {"topic": "echo", "delayMs": 60000}]}),
        )
        .answers(StatusCode::CREATED, "The ids of all", Schema::object([("ids", ids)]))
        .refuses(WRONG)
}

pub(in crate::http) fn show(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "The task", Schema::named("TaskWithAttempts"))
}

pub(in crate::http) fn list(operation: Operation) -> Operation {
    let statuses = Schema::list(status_in_filters()).about("separated by commas; `active` means `running`");
    operation
        .query("status", statuses)
        .query("topic", Schema::topic())
        .query("ownerId", Schema::text().example("me"))
        .query("tenantId", Schema::text().example("acme"))
        .query("correlationId", Schema::text().example("order-17"))
        .query("clientRequestId", Schema::text().example("order-17-reminder"))
        .query("scheduleId", Schema::id())
        .query("from", Schema::instant().about("no `runAt` before"))
        .query("to", Schema::instant().about("only a `runAt` before"))
        .paged(Schema::named("Task"))
}

pub(in crate::http) fn cancel(operation: Operation) -> Operation {
    operation.empty_body().answers(StatusCode::OK, "The task, which has ended", Schema::named("Task"))
}

pub(in crate::http) fn reschedule(operation: Operation) -> Operation {
    operation
        .body(Schema::named("TaskChanges"), json!({"delayMs": 3_600_000}))
        .answers(StatusCode::CREATED, "The task in its place", Schema::named("Task"))
        .with_location("task")
        .refuses(WRONG)
        .refuses([Code::AlreadyEnded, Code::DedupeKeyInUse])
}

pub(in crate::http) fn retry(operation: Operation) -> Operation {
    operation
        .empty_body()
        .answers(StatusCode::CREATED, "The new task", Schema::named("Task"))
        .answers(StatusCode::OK, "The living task with the same `dedupeKey`", Schema::named("DeduplicatedTask"))
        .with_location("task")
        .refuses([Code::NotFailed])
}

pub(in crate::http) fn bulk(operation: Operation) -> Operation {
    let status = Schema::either([status_in_filters(), Schema::some(status_in_filters())]);
    let names =
        ["status", "topic", "ownerId", "tenantId", "correlationId", "clientRequestId", "scheduleId", "from", "to"];
    let filter = Schema::object([])
        .takes([
            ("status", status),
            ("topic", Schema::topic()),
            ("ownerId", Schema::said()),
            ("tenantId", Schema::said()),
            ("correlationId", Schema::said()),
            ("clientRequestId", Schema::said()),
            ("scheduleId", Schema::id()),
            ("from", Schema::instant()),
            ("to", Schema::instant()),
        ])
        .says_some_of(&names)
        .about("as in the list of tasks; one that asks for nothing is refused");
    let dry_run = Schema::flag().or(false).about("only count");
    operation
        .body(
            Schema::object([("filter", filter)]).takes([("dryRun", dry_run)]),
            json!({"filter": {"topic": "echo", "status": ["failed"]}, "dryRun": true}),
        )
        .answers(StatusCode::OK, "How many", Schema::object([("count", Schema::count())]))
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    vec![
        (
            "NewTask",
            new_task().needs([("topic", Schema::topic())]).one_of(when_due()).example(json!({"topic": "echo"})),
        ),
        (
            "TaskChanges",
            new_task().takes([("topic", Schema::topic())]).one_of(either_due()).example(json!({"delayMs": 3_600_000})),
        ),
        ("RetryPolicy", retry_policy()),
        ("Backoff", backoff()),
        ("Task", task().example(example())),
        ("TaskWithAttempts", task().needs([("attempts", Schema::list(attempt()))]).example(ended())),
        (
            "DeduplicatedTask",
            task().needs([("deduplicated", Schema::flag())]).example(example_with(json!({"deduplicated": true}))),
        ),
    ]
}

/// What callers may say about a task.
fn new_task() -> Schema {
    Schema::object([]).takes([
        ("runAt", Schema::instant().about("when it is due, in the future and within 100 years")),
        ("delayMs", Schema::whole(0..=MAX_TASK_DELAY_MS).about("when it is due, from now on")),
        ("timezone", Schema::timezone().about("the zone that `runAt` is meant in; required with it")),
        ("payload", Schema::any().or(json!({})).about("any JSON value of at most 1 MiB, 128 levels deep")),
        ("metadata", Schema::metadata()),
        ("clientRequestId", Schema::key().about("makes one task, ever")),
        ("dedupeKey", Schema::key().about("one living task per topic and key")),
        ("serialKey", Schema::key().about("one runs at a time per topic and key")),
        ("priority", priority()),
        ("timeoutSeconds", timeout().or(DEFAULT_TIMEOUT_SECONDS)),
        ("retry", retry_input()),
    ])
}

/// Due at an instant that has its zone, or after a delay, or now.
fn when_due() -> [Value; 2] {
    [
        json!({"properties": {"runAt": {"type": "null"}}}),
        json!({
            "properties": {
                "runAt": {"type": "string"}, "timezone": {"type": "string"}, "delayMs": {"type": "null"},
            },
            "required": ["runAt", "timezone"],
        }),
    ]
}

/// The same where the zone is known.
fn either_due() -> [Value; 2] {
    [json!({"properties": {"runAt": {"type": "null"}}}), json!({"properties": {"delayMs": {"type": "null"}}})]
}

/// Says a retry policy; what is left out is as the topic or the default has it.
pub(super) fn retry_input() -> Schema {
    let attempts = Schema::whole(1..=i64::from(MAX_ATTEMPTS)).or(1).about("attempts in all");
    Schema::object([]).takes([("attempts", attempts), ("backoff", backoff_input())])
}

/// Says how long to wait between attempts.
pub(super) fn backoff_input() -> Schema {
    Schema::object([]).takes([
        ("type", Schema::word(["fixed", "exponential"]).or("exponential")),
        ("delay", Schema::whole(0..=MAX_DELAY_MS as i64).or(5_000).about("the first wait, in milliseconds")),
        ("maxDelay", Schema::whole(0..=MAX_DELAY_MS as i64).or(3_600_000).about("the longest wait; at least `delay`")),
        ("jitter", Schema::number(0.0..=1.0).or(0.2).about("how much of a wait is left to chance")),
    ])
}

pub(super) fn priority() -> Schema {
    Schema::whole(-100..=100).or(0).about("larger first")
}

pub(super) fn timeout() -> Schema {
    Schema::whole(1..=i64::from(MAX_TIMEOUT_SECONDS)).about("how long one attempt may take")
}

fn retry_policy() -> Schema {
    Schema::object([("attempts", Schema::whole(1..=i64::from(MAX_ATTEMPTS))), ("backoff", Schema::named("Backoff"))])
}

fn backoff() -> Schema {
    Schema::object([
        ("type", Schema::word(["fixed", "exponential"])),
        ("delay", Schema::count()),
        ("maxDelay", Schema::count()),
        ("jitter", Schema::number(0.0..=1.0)),
    ])
}

fn status_in_filters() -> Schema {
    Schema::word(TaskStatus::ALL.map(TaskStatus::as_str).into_iter().chain(["active"]))
}

/// A task as lists show it.
pub(super) fn task() -> Schema {
    Schema::object([
        ("id", Schema::id()),
        ("topic", Schema::topic()),
        ("status", Schema::word(TaskStatus::ALL.map(TaskStatus::as_str))),
        ("runAt", Schema::instant()),
        ("timezone", Schema::timezone()),
        ("payload", Schema::any()),
        ("metadata", Schema::metadata()),
        ("clientRequestId", Schema::key().or_null()),
        ("dedupeKey", Schema::key().or_null()),
        ("serialKey", Schema::key().or_null()),
        ("priority", Schema::whole(-100..=100)),
        ("timeoutSeconds", timeout()),
        ("retry", Schema::named("RetryPolicy")),
        ("attempt", Schema::count().about("the number of the current or last attempt")),
        ("result", Schema::any().about("what the handler or worker answered")),
        ("error", Schema::text().or_null().about("what went wrong last")),
        ("scheduleId", Schema::id().or_null()),
        ("scheduledAt", Schema::instant().or_null()),
        ("retryOf", Schema::id().or_null()),
        ("rescheduledFrom", Schema::id().or_null()),
        ("createdAt", Schema::instant()),
        ("startedAt", Schema::instant().or_null()),
        ("completedAt", Schema::instant().or_null()),
        (
            "warnings",
            Schema::list(Schema::text().example("nobody serves the topic mail.send")).about(
                "what may surprise, such as that nobody serves its topic: when it is made and in the single view, else empty",
            ),
        ),
    ])
}

fn attempt() -> Schema {
    Schema::object([
        ("number", Schema::count()),
        ("nodeId", Schema::id()),
        ("epoch", Schema::count()),
        ("startedAt", Schema::instant()),
        ("endedAt", Schema::instant().or_null()),
        ("outcome", Schema::word(AttemptOutcome::ALL.map(AttemptOutcome::as_str)).or_null()),
        ("error", Schema::text().or_null()),
    ])
}

/// The example, with other and further fields.
pub(super) fn example_with(fields: Value) -> Value {
    let mut example = example();
    if let (Some(example), Value::Object(mut fields)) = (example.as_object_mut(), fields) {
        example.append(&mut fields);
    }
    example
}

fn ended() -> Value {
    let (began, ended) = ("2036-12-01T21:37:00.012Z", "2036-12-01T21:37:00.250Z");
    let attempt = json!({
        "number": 1, "nodeId": "019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d13", "epoch": 1, "startedAt": began, "endedAt": ended,
        "outcome": "completed", "error": null,
    });
    example_with(json!({
        "status": "completed", "attempt": 1, "result": {"sent": true}, "startedAt": began, "completedAt": ended,
        "attempts": [attempt],
    }))
}

fn example() -> Value {
    json!({
        "id": "019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d11", "topic": "signup.reminder.early", "status": "pending",
        "runAt": "2036-12-01T21:37:00.000Z", "timezone": "America/Mexico_City", "payload": {"user": 17},
        "metadata": {"ownerId": "me"}, "clientRequestId": null, "dedupeKey": null, "serialKey": null, "priority": 0,
        "timeoutSeconds": 3600,
        "retry": {
            "attempts": 3, "backoff": {"type": "exponential", "delay": 1000, "maxDelay": 3_600_000, "jitter": 0.2},
        },
        "attempt": 0, "result": null, "error": null, "scheduleId": null, "scheduledAt": null, "retryOf": null,
        "rescheduledFrom": null, "createdAt": "2026-11-16T14:30:00.000Z", "startedAt": null, "completedAt": null,
        "warnings": [],
    })
}
