//! Calendars: days on which schedules do not fire.

use axum::http::StatusCode;
use serde_json::{Value, json};

use super::operation::Operation;
use crate::http::calendars::MAX_DATES;
use crate::http::problem::Code;
use punctual_sdk::Schema;

pub(in crate::http) fn list(operation: Operation) -> Operation {
    operation.paged_by_name(Schema::named("Calendar"))
}

pub(in crate::http) fn create(operation: Operation) -> Operation {
    operation
        .body(days().needs([("name", name())]), example())
        .answers(StatusCode::CREATED, "The new calendar", Schema::named("Calendar"))
        .with_location("calendar")
        .leads_to("name", "$response.body#/name", ["getCalendar", "putCalendar", "deleteCalendar"])
        .refuses([Code::NameTaken])
}

pub(in crate::http) fn show(operation: Operation) -> Operation {
    operation.place("name", name()).answers(StatusCode::OK, "The calendar", Schema::named("Calendar"))
}

pub(in crate::http) fn put(operation: Operation) -> Operation {
    let in_body = name().about("as in the address, or left out");
    operation
        .place("name", name())
        .body(days().takes([("name", in_body)]), json!({"dates": ["2036-12-25"]}))
        .answers(StatusCode::OK, "The calendar", Schema::named("Calendar"))
        .answers(StatusCode::CREATED, "The new calendar", Schema::named("Calendar"))
        .with_location("calendar")
}

pub(in crate::http) fn delete(operation: Operation) -> Operation {
    operation.place("name", name()).answers_nothing("It is gone").refuses([Code::CalendarInUse])
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let calendar = Schema::object([
        ("name", name()),
        ("dates", Schema::list(Schema::format("date"))),
        ("weekdays", Schema::list(weekday())),
    ]);
    vec![("Calendar", calendar.example(example()))]
}

fn name() -> Schema {
    Schema::key().matching(r"\S").example("holidays")
}

fn days() -> Schema {
    let about = "days of every week, by their English names";
    Schema::object([]).takes([
        ("dates", Schema::list_of(Schema::format("date"), 0..=MAX_DATES)),
        ("weekdays", Schema::list_of(weekday(), 0..=7).about(about)),
    ])
}

fn weekday() -> Schema {
    Schema::word(["mon", "tue", "wed", "thu", "fri", "sat", "sun"])
}

fn example() -> Value {
    json!({"name": "holidays", "dates": ["2036-12-25"], "weekdays": ["sat", "sun"]})
}
