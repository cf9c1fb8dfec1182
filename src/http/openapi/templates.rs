//! Templates: the messages that plugins send.

use axum::http::StatusCode;

use super::operation::Operation;
use punctual_sdk::Schema;

pub(in crate::http) fn list(operation: Operation) -> Operation {
    operation.answers(StatusCode::OK, "All of them", Schema::page(Schema::named("Template")))
}

pub(in crate::http) fn show(operation: Operation) -> Operation {
    operation
        .place("plugin", Schema::key().example("signup"))
        .place("slug", Schema::key().example("signup-reminder-early"))
        .answers(StatusCode::OK, "The template", Schema::named("Template"))
}

pub(super) fn schemas() -> Vec<(&'static str, Schema)> {
    let template = Schema::object([
        ("plugin", Schema::text().example("signup")),
        ("slug", Schema::text().example("signup-reminder-early")),
        ("values", Schema::by_name(Schema::any()).about("what its gaps are filled with: its sample")),
        ("subject", Schema::text().example("Your order is waiting")),
        ("text", Schema::text().example("Go on where you stopped: https://example.com")),
        ("html", Schema::text().or_null()),
    ]);
    vec![("Template", template)]
}
