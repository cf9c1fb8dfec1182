//! Questions about the past and the future: did it, would it, why not, what would move.

use axum::http::StatusCode;
use serde_json::json;

use super::operation::Operation;
use crate::http::problem::Code;
use punctual_sdk::Schema;

pub(in crate::http) fn prove(operation: Operation) -> Operation {
    operation
        .query("schedule", Schema::text().about("its name or id; else all").example("nightly"))
        .needs_query("from", Schema::instant().about("the first instant"))
        .needs_query("to", Schema::instant().about("the first instant after it"))
        .answers(StatusCode::OK, "What was found", Schema::named("Proof"))
        .refuses([Code::NotFound])
}

pub(in crate::http) fn simulate(operation: Operation) -> Operation {
    operation
        .needs_query("from", Schema::instant().about("the first instant, not in the past"))
        .needs_query("to", Schema::instant().about("the first instant after it, at most 366 days later"))
        .answers(StatusCode::OK, "What would happen", Schema::named("Simulation"))
}

pub(in crate::http) fn why(operation: Operation) -> Operation {
    let id =
        Schema::said().about("the id of a task, an execution or a schedule, or a schedule's name").example("nightly");
    operation.place("id", id).answers(
        StatusCode::OK,
        "Every reason, the one that counts most first",
        Schema::named("Reasons"),
    )
}

pub(in crate::http) fn tz_diff(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "What would move", Schema::named("ZoneDiff"))
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    vec![("Proof", proof()), ("Simulation", simulation()), ("Reasons", reasons()), ("ZoneDiff", zone_diff())]
}

fn instants() -> Schema {
    Schema::list(Schema::instant())
}

fn proof() -> Schema {
    let moved = Schema::object([("was", Schema::instant()), ("is", Schema::instant())]);
    let pause = Schema::object([
        ("from", Schema::instant()),
        ("to", Schema::instant().or_null()),
        ("note", Schema::text().or_null()),
    ]);
    let of_schedule = Schema::object([
        ("id", Schema::id()),
        ("name", Schema::text().example("nightly")),
        ("timezone", Schema::timezone()),
        ("holds", Schema::flag()),
        ("expected", Schema::count()),
        ("fired", Schema::count()),
        ("skipped", Schema::count()),
        ("skippedBy", Schema::by_name(Schema::count())),
        ("missing", instants()),
        ("missingCount", Schema::count()),
        ("double", instants()),
        ("doubleCount", Schema::count()),
        ("unexpected", instants()),
        ("unexpectedCount", Schema::count()),
        ("miscounted", instants()),
        ("late", Schema::count()),
        ("maxLagMs", Schema::count()),
    ])
    .needs([
        ("pending", Schema::count()),
        ("overtaken", Schema::count()),
        ("filled", Schema::count()),
        ("moved", Schema::list(moved)),
        ("movedCount", Schema::count()),
        ("pruned", Schema::count()),
        ("manual", Schema::count()),
        ("backfilled", Schema::count()),
        ("createdAt", Schema::instant().or_null()),
        ("deletedAt", Schema::instant().or_null()),
        ("pauses", Schema::list(pause)),
        ("error", Schema::text().or_null()),
    ]);
    Schema::object([
        ("from", Schema::instant()),
        ("to", Schema::instant()),
        ("holds", Schema::flag().about("whether nothing is missing, double or unexpected")),
        ("now", Schema::instant()),
        ("tzVersion", Schema::text().example("2026e")),
        ("prunedBefore", Schema::instant().or_null().about("fires from before may have been removed")),
        ("schedules", Schema::list(of_schedule)),
    ])
}

fn simulation() -> Schema {
    let of_schedule = Schema::object([
        ("id", Schema::id()),
        ("name", Schema::text().example("nightly")),
        ("topic", Schema::topic()),
        ("timezone", Schema::timezone()),
        ("fires", Schema::count()),
        ("excluded", Schema::count()),
        ("first", Schema::instant().or_null()),
        ("last", Schema::instant().or_null()),
        ("paused", Schema::flag()),
        ("error", Schema::text().or_null()),
    ]);
    let hour = Schema::object([
        ("at", Schema::instant()),
        ("fires", Schema::count()),
        ("peakAt", Schema::instant()),
        ("peak", Schema::count()),
    ]);
    let minute = Schema::object([
        ("at", Schema::instant()),
        ("fires", Schema::count()),
        ("schedules", Schema::list(Schema::text().example("nightly"))),
    ]);
    Schema::object([
        ("from", Schema::instant()),
        ("to", Schema::instant()),
        ("tzVersion", Schema::text().example("2026e")),
        ("fires", Schema::count()),
        ("schedules", Schema::list(of_schedule)),
        ("hours", Schema::list(hour).about("hour by hour, in UTC")),
        ("busiest", Schema::list(minute).about("the minutes with the most fires")),
    ])
}

fn reasons() -> Schema {
    let reason = Schema::object([
        ("code", Schema::text().about("the same word for the same cause").example("not_due")),
        (
            "message",
            Schema::text().about("what it is, and what to do about it").example("it is not due before 2036-12-01"),
        ),
    ]);
    Schema::object([
        ("id", Schema::id()),
        ("kind", Schema::word(["task", "execution", "schedule"])),
        ("name", Schema::text().about("the topic of a task, the name of a schedule").example("mail.send")),
        ("status", Schema::text().example("pending")),
        ("now", Schema::instant()),
        ("reasons", Schema::list(reason)),
    ])
}

fn zone_diff() -> Schema {
    let release = || {
        Schema::object([
            ("version", Schema::text().example(json!("2026e"))),
            ("source", Schema::text().example("bundled")),
        ])
    };
    let moved = Schema::object([("from", Schema::instant().or_null()), ("to", Schema::instant().or_null())]);
    let of_schedule = Schema::object([
        ("id", Schema::id()),
        ("name", Schema::text().example("nightly")),
        ("timezone", Schema::timezone()),
        ("count", Schema::count()),
        ("more", Schema::flag().about("whether there are more than were counted")),
        ("moves", Schema::list(moved)),
        ("error", Schema::text().or_null()),
    ]);
    Schema::object([
        ("from", release()),
        ("to", release()),
        ("until", Schema::instant()),
        ("lookedAt", Schema::count()),
        ("schedules", Schema::list(of_schedule)),
    ])
}
