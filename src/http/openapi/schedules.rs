//! Schedules: made, looked at, edited, moved; and what lies behind and ahead of them.

use axum::http::StatusCode;
use punctual_domain::fire::{FireKind, FireStatus, SkipReason};
use punctual_domain::retry::MAX_ATTEMPTS;
use punctual_domain::schedule::{
    DEFAULT_ATTEMPTS, Definition, MAX_CALENDARS, MAX_DESCRIPTION, MAX_FIRES, MAX_JITTER_SECONDS,
    MAX_MISFIRE_WINDOW_SECONDS,
};
use punctual_domain::task::{DEFAULT_TIMEOUT_SECONDS, TaskStatus};
use punctual_domain::time::Interval;
use serde_json::{Value, json};

use super::operation::Operation;
use super::tasks::{backoff_input, priority, timeout};
use crate::http::new_schedule::{FOLD, GAP, MAX_EXPRESSION, MISFIRE, OVERLAP};
use crate::http::outlook::{DEFAULT_COUNT, MAX_COUNT};
use crate::http::problem::Code;
use crate::http::schedule_moves;
use punctual_sdk::Schema;

/// What can be wrong with a schedule, beside what can be wrong with anything.
const WRONG: [Code; 3] = [Code::InvalidTimezone, Code::InvalidCron, Code::NeverFires];

/// What can be done with a schedule.
const MOVES: [&str; 11] = [
    "getSchedule",
    "replaceSchedule",
    "patchSchedule",
    "deleteSchedule",
    "pauseSchedule",
    "resumeSchedule",
    "triggerSchedule",
    "backfillSchedule",
    "listExecutions",
    "nextFires",
    "why",
];

pub(in crate::http) fn create(operation: Operation) -> Operation {
    operation
        .body(Schema::named("NewSchedule"), example_input())
        .answers(StatusCode::CREATED, "The new schedule", with_warnings())
        .with("ETag", "the version")
        .with_location("schedule")
        .leads_to("id", "$response.body#/id", MOVES)
        .refuses(WRONG)
        .refuses([Code::ClientRequestIdInUse, Code::NameTaken])
}

pub(in crate::http) fn list(operation: Operation) -> Operation {
    operation
        .query("enabled", Schema::flag())
        .query("topic", Schema::topic())
        .query("jobType", Schema::topic().about("another name for `topic`; not beside it"))
        .query("name", Schema::text().example("nightly"))
        .query("ownerId", Schema::text().example("me"))
        .paged(Schema::named("Schedule"))
}

pub(in crate::http) fn show(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "The schedule", Schema::named("Schedule")).with("ETag", "the version")
}

pub(in crate::http) fn replace(operation: Operation) -> Operation {
    edited(operation.body(Schema::named("NewSchedule"), example_input())).refuses(WRONG).refuses([Code::NameTaken])
}

pub(in crate::http) fn patch(operation: Operation) -> Operation {
    edited(operation.patch_body(Schema::named("ScheduleChanges"), json!({"cronExpression": "30 8 * * 1-5"})))
        .refuses(WRONG)
        .refuses([Code::NameTaken])
}

pub(in crate::http) fn delete(operation: Operation) -> Operation {
    operation.if_match().answers_nothing("It is gone, and its pending tasks are cancelled")
}

pub(in crate::http) fn pause(operation: Operation) -> Operation {
    let note = Schema::text_of(0..=schedule_moves::MAX_NOTE).about("why, for people");
    let until = Schema::instant().about("when it is resumed by itself, in the future");
    let example = json!({"note": "the printer is away", "until": "2036-12-01T21:37:00Z"});
    edited(operation.optional_body(Schema::object([]).takes([("note", note), ("until", until)]), example))
}

pub(in crate::http) fn resume(operation: Operation) -> Operation {
    edited(operation.empty_body()).refuses(WRONG)
}

pub(in crate::http) fn trigger(operation: Operation) -> Operation {
    operation
        .empty_body()
        .if_match()
        .answers(StatusCode::CREATED, "The task that it made", Schema::named("Task"))
        .with_location("task")
}

pub(in crate::http) fn backfill(operation: Operation) -> Operation {
    let most = Schema::whole(1..=schedule_moves::MAX_FIRES).or(schedule_moves::DEFAULT_FIRES);
    let body = Schema::object([
        ("from", Schema::instant().about("the first instant, before `to`")),
        ("to", Schema::instant().about("the first instant after it, not in the future")),
    ])
    .takes([
        ("dryRun", Schema::flag().or(false).about("make none")),
        ("instants", Schema::flag().or(false).about("list the instants too")),
        ("maxFires", most.about("more than so many are refused, and none is made")),
    ]);
    let skipped =
        Schema::count().about("those that calendars exclude, and those that the schedule has still to decide");
    let answer = Schema::object([("made", Schema::count()), ("alreadyFired", Schema::count()), ("skipped", skipped)])
        .takes([("instants", Schema::list(Schema::instant()).about("those that are made, if they are asked for"))]);
    operation
        .body(body, json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z", "dryRun": true}))
        .answers(StatusCode::OK, "How many instants", answer)
        .refuses(WRONG)
}

pub(in crate::http) fn executions(operation: Operation) -> Operation {
    let known = TaskStatus::ALL.map(TaskStatus::as_str).into_iter().chain(["skipped", "dispatched", "active"]);
    operation
        .query("status", Schema::list(Schema::word(known)).about("separated by commas; `active` means `running`"))
        .query("from", Schema::instant().about("no instant before"))
        .query("to", Schema::instant().about("only instants before"))
        .paged(Schema::named("Execution"))
}

pub(in crate::http) fn next(operation: Operation) -> Operation {
    operation
        .query("count", Schema::whole(1..=MAX_COUNT as i64).or(DEFAULT_COUNT))
        .answers(StatusCode::OK, "The next instants", Schema::named("Outlook"))
        .refuses(WRONG)
}

pub(in crate::http) fn preview(operation: Operation) -> Operation {
    let count = Schema::whole(1..=MAX_COUNT as i64).or(DEFAULT_COUNT).about("how many instants");
    let body = fields()
        .needs([("timezone", Schema::timezone())])
        .takes([("name", name()), ("topic", Schema::topic()), ("jobType", job_type()), ("count", count)])
        .one_of(rhythm())
        .one_of(not_both("topic", "jobType"))
        .one_of(not_both("payload", "jobPayload"));
    operation
        .body(body, json!({"cronExpression": "30 2 * * *", "timezone": "America/New_York", "count": 3}))
        .answers(StatusCode::OK, "The next instants", Schema::named("Outlook"))
        .refuses(WRONG)
}

/// An edit: it may ask for a version, and answers the schedule as it is then.
fn edited(operation: Operation) -> Operation {
    operation.if_match().answers(StatusCode::OK, "The schedule", with_warnings()).with("ETag", "the version")
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let new_schedule = fields()
        .needs([("name", name()), ("timezone", Schema::timezone())])
        .takes([("topic", Schema::topic()), ("jobType", job_type())])
        .one_of(rhythm())
        .one_of([says_without("topic", "jobType"), says_without("jobType", "topic")])
        .one_of(not_both("payload", "jobPayload"))
        .example(example_input());
    let changes = fields()
        .may_have([
            ("name", name()),
            ("timezone", Schema::timezone()),
            ("topic", Schema::topic()),
            ("jobType", job_type()),
        ])
        .one_of(not_both("topic", "jobType"))
        .one_of(not_both("payload", "jobPayload"))
        .about("what is left out stays as it is; `null` gives a field back its default")
        .example(json!({"cronExpression": "0 10 * * 1-5", "maxRetries": null}));
    vec![
        ("NewSchedule", new_schedule),
        ("ScheduleChanges", changes),
        ("Schedule", schedule().example(example())),
        ("Execution", execution()),
        ("Outlook", outlook()),
    ]
}

/// What callers may say about a schedule, beside its name, its zone and its topic.
/// A name that people read.
fn name() -> Schema {
    Schema::key().matching(r"\S").example("nightly")
}

fn fields() -> Schema {
    let words = |words: Vec<&'static str>| Schema::word(words);
    let retry = Schema::object([]).takes([("backoff", backoff_input())]);
    let every = Schema::whole(Interval::MIN_MS as i64..=Definition::MAX_EVERY_MS as i64);
    let calendar = Schema::key().example("holidays");
    Schema::object([])
        .takes([
            ("description", Schema::text_of(0..=MAX_DESCRIPTION)),
            ("cronExpression", cron()),
            ("everyMs", every.about("elapsed time between fires, from `startAt` or its making on")),
            ("payload", Schema::any().or(json!({})).about("any JSON value of at most 1 MiB, 128 levels deep")),
            ("jobPayload", Schema::any().about("another name for `payload`; not beside it")),
            ("enabled", Schema::flag().or(true)),
            (
                "maxRetries",
                Schema::whole(0..=i64::from(MAX_ATTEMPTS)).or(DEFAULT_ATTEMPTS).about("attempts in all; 0 means 1"),
            ),
            ("retry", retry),
            ("timeoutSeconds", timeout().or(DEFAULT_TIMEOUT_SECONDS)),
            ("priority", priority()),
        ])
        .takes([
            ("overlapPolicy", words(OVERLAP.iter().map(|(word, _)| *word).collect()).or("skip")),
            ("misfirePolicy", words(MISFIRE.iter().map(|(word, _)| *word).collect()).or("fire_once")),
            ("misfireWindowSeconds", Schema::whole(0..=i64::from(MAX_MISFIRE_WINDOW_SECONDS)).or(86_400)),
            ("jitterSeconds", Schema::whole(0..=i64::from(MAX_JITTER_SECONDS)).or(0)),
            ("startAt", Schema::instant().about("no fire before")),
            ("endAt", Schema::instant().about("only fires before; after `startAt`")),
            ("maxFires", Schema::whole(1..=MAX_FIRES as i64)),
            ("dstGap", words(GAP.iter().map(|(word, _)| *word).collect())),
            ("dstFold", words(FOLD.iter().map(|(word, _)| *word).collect())),
            (
                "excludeCalendars",
                Schema::texts(calendar, 0..=MAX_CALENDARS).about("calendars that there are, each once"),
            ),
            ("metadata", Schema::metadata()),
            ("clientRequestId", Schema::key().about("makes one schedule, ever; cannot be changed")),
            ("createdBy", Schema::key()),
        ])
}

fn cron() -> Schema {
    Schema::format("cron")
        .about(&format!("five fields, or six with leading seconds, of at most {MAX_EXPRESSION} characters"))
        .example("0 9 * * 1-5")
}

fn job_type() -> Schema {
    Schema::topic().about("another name for `topic`; not beside it")
}

/// A cron expression or an interval.
fn rhythm() -> [Value; 2] {
    let only = |one: &str, other: &str, kind: &str| json!({"properties": {one: {"type": kind}, other: {"type": "null"}}, "required": [one]});
    [only("cronExpression", "everyMs", "string"), only("everyMs", "cronExpression", "integer")]
}

/// One name of a field, said, and not the other.
fn says_without(name: &str, other: &str) -> Value {
    json!({"properties": {name: {"type": "string"}, other: false}, "required": [name]})
}

/// One name of a field or the other.
fn not_both(name: &str, other: &str) -> [Value; 2] {
    [json!({"properties": {other: false}}), json!({"properties": {name: false}})]
}

fn schedule() -> Schema {
    let words = |words: Vec<&'static str>| Schema::word(words);
    Schema::object([
        ("id", Schema::id()),
        ("name", Schema::key().example("nightly")),
        ("description", Schema::text().or_null()),
        ("cronExpression", cron().or_null()),
        ("everyMs", Schema::count().or_null()),
        ("timezone", Schema::timezone()),
        ("topic", Schema::topic()),
        ("payload", Schema::any()),
        ("enabled", Schema::flag()),
        ("maxRetries", Schema::count()),
        ("retry", Schema::object([("backoff", Schema::named("Backoff"))])),
        ("timeoutSeconds", timeout()),
        ("priority", Schema::whole(-100..=100)),
        ("overlapPolicy", words(OVERLAP.iter().map(|(word, _)| *word).collect())),
        ("misfirePolicy", words(MISFIRE.iter().map(|(word, _)| *word).collect())),
        ("misfireWindowSeconds", Schema::count()),
        ("jitterSeconds", Schema::count()),
        ("startAt", Schema::instant().or_null()),
        ("endAt", Schema::instant().or_null()),
        ("maxFires", Schema::count().or_null()),
        ("dstGap", words(GAP.iter().map(|(word, _)| *word).collect()).or_null()),
        ("dstFold", words(FOLD.iter().map(|(word, _)| *word).collect()).or_null()),
        ("excludeCalendars", Schema::list(Schema::key().example("holidays"))),
        ("metadata", Schema::metadata()),
        ("clientRequestId", Schema::key().or_null()),
        ("createdBy", Schema::key().or_null()),
    ])
    .needs([
        ("lastFiredAt", Schema::instant().or_null().about("when the last fire that made a task happened")),
        ("nextFireAt", Schema::instant().or_null().about("null while it is disabled, or has no instant left")),
        ("pauseNote", Schema::text().or_null()),
        ("pausedUntil", Schema::instant().or_null()),
        ("createdAt", Schema::instant()),
        ("updatedAt", Schema::instant()),
        ("version", Schema::count().about("changes with edits, not with fires")),
    ])
}

fn with_warnings() -> Schema {
    let mut example = example();
    example["warnings"] = json!([]);
    schedule().needs([("warnings", warnings())]).example(example)
}

fn warnings() -> Schema {
    Schema::list(Schema::text().example("nobody serves the topic mail.send")).about("what whoever wrote it should know")
}

fn execution() -> Schema {
    let statuses = TaskStatus::ALL.map(FireStatus::Task).map(FireStatus::as_str);
    Schema::object([
        ("id", Schema::id()),
        ("kind", Schema::word(FireKind::ALL.map(FireKind::as_str))),
        ("scheduledAt", Schema::instant().about("of a run of skipped instants the first")),
        ("firedAt", Schema::instant()),
        ("startedAt", Schema::instant().or_null()),
        ("completedAt", Schema::instant().or_null()),
        ("status", Schema::word(statuses.into_iter().chain(["skipped", "dispatched"])).or_null()),
        ("attempts", Schema::count()),
        ("durationMs", Schema::count().or_null()),
        ("lagMs", Schema::count()),
        ("error", Schema::text().or_null()),
        ("taskId", Schema::id().or_null()),
        ("reason", Schema::word(SkipReason::ALL.map(SkipReason::as_str)).or_null()),
        ("tzVersion", Schema::text().example("2026e")),
        ("until", Schema::instant().or_null().about("of a run of skipped instants the last")),
        ("count", Schema::whole(1..=i64::MAX).about("how many instants of a run")),
    ])
    .example(json!({
        "id": "019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d14", "kind": "schedule", "scheduledAt": "2036-12-01T15:00:00.000Z",
        "firedAt": "2036-12-01T15:00:00.003Z", "startedAt": "2036-12-01T15:00:00.012Z",
        "completedAt": "2036-12-01T15:00:00.250Z", "status": "completed", "attempts": 1, "durationMs": 238, "lagMs": 12,
        "error": null, "taskId": "019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d11", "reason": null, "tzVersion": "2026e",
        "until": null, "count": 1,
    }))
}

fn outlook() -> Schema {
    let next = Schema::object([
        ("at", Schema::instant()),
        ("local", Schema::text().about("the same on a clock in the schedule's zone").example("2026-11-16T08:30:00")),
        ("offset", Schema::text().example("-06:00")),
        ("note", Schema::word(["gap", "fold"]).or_null().about("what the clocks do then")),
    ]);
    Schema::object([("next", Schema::list(next)), ("warnings", warnings())])
}

fn example_input() -> Value {
    json!({
        "name": "morning report", "cronExpression": "0 9 * * 1-5", "timezone": "America/Mexico_City", "topic": "echo",
    })
}

fn example() -> Value {
    json!({
        "id": "019a8f3e-5d7c-7c43-9f1e-3b8f0a6f2d12", "name": "morning report", "description": null,
        "cronExpression": "0 9 * * 1-5", "everyMs": null, "timezone": "America/Mexico_City", "topic": "echo",
        "payload": {}, "enabled": true, "maxRetries": 3,
        "retry": {"backoff": {"type": "exponential", "delay": 5000, "maxDelay": 3_600_000, "jitter": 0.2}},
        "timeoutSeconds": 3600, "priority": 0, "overlapPolicy": "skip", "misfirePolicy": "fire_once",
        "misfireWindowSeconds": 86_400, "jitterSeconds": 0, "startAt": null, "endAt": null, "maxFires": null,
        "dstGap": null, "dstFold": null, "excludeCalendars": [], "metadata": {}, "clientRequestId": null,
        "createdBy": null, "lastFiredAt": null, "nextFireAt": "2026-11-17T15:00:00.000Z", "pauseNote": null,
        "pausedUntil": null, "createdAt": "2026-11-16T14:30:00.000Z", "updatedAt": "2026-11-16T14:30:00.000Z",
        "version": 1,
    })
}
